-- A parked event whose key went on without it goes to the end of its line.
create or replace function app.outbox_replay(
    p_ids uuid[], p_reason text, p_operator text default null
) returns table (id uuid, audit_id uuid)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
    if cardinality(p_ids) > 1000 then
        raise exception using errcode = 'PN005', message = 'at most 1000 events in one call';
    end if;
    return query
        with picked as materialized (
            select o.seq from public.outbox o
            where o.id = any (p_ids) and (o.dead_at is not null or o.held_at is not null)
            order by o.seq
            for update skip locked
        ), back as (
            update public.outbox o
            set pos = case when o.parked_at is null then nextval('penstock.outbox_next') end,
                turn = case when o.parked_at is not null then nextval('public.outbox_seq_seq') end,
                dead_at = null, held_at = null, parked_at = null,
                attempts = 0, replay_count = o.replay_count + 1
            from picked p
            where o.seq = p.seq
            returning o.id, o.error_code, o.replay_count, o.key_hash, o.turn
        ), looked as (
            insert into public.outbox_key_checks (key_hash)
            select b.key_hash from back b where b.turn is not null
        )
        select b.id, audit.record('replay', 'public.outbox',
            jsonb_build_object('id', b.id, 'error_code', b.error_code,
                               'replay_count', b.replay_count), p_reason, p_operator)
        from back b;
end
$$;

comment on function app.outbox_replay(uuid[], text, text) is
    'Give dead or held events a new cycle of attempts; one audit row each, none for the others.';
revoke all on function app.outbox_replay(uuid[], text, text) from public;
grant execute on function app.outbox_replay(uuid[], text, text) to penstock_operator;
