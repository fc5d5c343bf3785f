-- One set of sequences per ready index. Names are ours and checked: they become identifiers.
create or replace function penstock.create_position(p_name text) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_part text;
begin
    if p_name !~ '^[a-z][a-z0-9_]{0,40}$' then
        raise exception using errcode = 'PN005', message = format('bad position name %L', p_name);
    end if;
    if exists (select from penstock.position where name = p_name) then
        return;
    end if;
    foreach v_part in array array[
        'next', 'wm', 'floor', 'settled', 'mark', 'xid', 'at', 'swept', 'net', 'due', 'lease'
    ] loop
        execute format('create sequence penstock.%I minvalue 0 start 0',
                       p_name || '_' || v_part);
        perform setval(format('penstock.%I', p_name || '_' || v_part)::regclass, 0);
    end loop;
    insert into penstock.position
        (name, next_pos, watermark, floor, settled, mark_pos, mark_xid, mark_at_ms,
         swept_ms, net_ms, due_ms, lease_ms)
    values (p_name,
        format('penstock.%I', p_name || '_next'), format('penstock.%I', p_name || '_wm'),
        format('penstock.%I', p_name || '_floor'), format('penstock.%I', p_name || '_settled'),
        format('penstock.%I', p_name || '_mark'), format('penstock.%I', p_name || '_xid'),
        format('penstock.%I', p_name || '_at'), format('penstock.%I', p_name || '_swept'),
        format('penstock.%I', p_name || '_net'), format('penstock.%I', p_name || '_due'),
        format('penstock.%I', p_name || '_lease'));
end
$$;

comment on function penstock.create_position(text) is
    'Make the sequences that hold positions, watermark and sweep marks of one ready index.';
revoke all on function penstock.create_position(text) from public;
