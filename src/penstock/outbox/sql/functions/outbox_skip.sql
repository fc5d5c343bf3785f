create or replace function app.outbox_skip(
    p_keys text[], p_reason text, p_operator text default null, p_tenant uuid default null,
    p_route text default null
) returns table (ordering_key text, id uuid, audit_id uuid)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    v_head record;
begin
    for v_head in select * from app.outbox_take_heads(p_keys, p_tenant, p_route) loop
        perform app.outbox_archive_rows(array[v_head.seq], null, 'DISCARDED');
        ordering_key := v_head.ordering_key;
        id := v_head.id;
        audit_id := audit.record('skip', 'public.outbox',
            jsonb_build_object('id', v_head.id, 'ordering_key', v_head.ordering_key),
            p_reason, p_operator);
        return next;
    end loop;
end
$$;

comment on function app.outbox_skip(text[], text, text, uuid, text) is
    'Give the heads of blocked keys up for good, whatever they wait for, and let the next go; audited.';
revoke all on function app.outbox_skip(text[], text, text, uuid, text) from public;
grant execute on function app.outbox_skip(text[], text, text, uuid, text) to penstock_operator;
