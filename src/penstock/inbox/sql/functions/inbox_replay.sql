-- The row keeps its event id, so handlers see the same event. Rows that somebody else has in hand
-- are skipped, and the status is asked again under the lock: two operators give one event one
-- cycle.
create or replace function webhook.inbox_replay(
    p_ids uuid[], p_reason text, p_operator text default null, p_key_suffix text default null
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
            select e.id, e.error_code from public.webhook_events e
            where e.id = any (p_ids) and e.status = 'dead_letter' and e.payload is not null
            order by e.seq
            for update skip locked
        ), back as (
            update public.webhook_events e
            set status = 'pending', pos = nextval('penstock.inbox_next'), dead_at = null,
                attempts = 0, replay_count = e.replay_count + 1, error_code = null
            from picked p
            where e.id = p.id and e.status = 'dead_letter'
            returning e.id, e.webhook_id, e.event_id, p.error_code, e.replay_count
        ), rekeyed as (
            update public.webhook_effects f
            set idempotency_key = f.idempotency_key || ':' || p_key_suffix
            from back b
            where p_key_suffix is not null and f.state = 'started'
              and f.webhook_id = b.webhook_id and f.event_id = b.event_id
        ), counted as (
            insert into webhook.tally (metric, webhook_id, label, count)
            select 'replay', b.webhook_id, 'operator', count(*) from back b group by b.webhook_id
        )
        select b.id, audit.record('replay', 'public.webhook_events',
            jsonb_build_object('id', b.id, 'webhook_id', b.webhook_id, 'event_id', b.event_id,
                               'error_code', b.error_code, 'replay_count', b.replay_count,
                               'idempotency_key_suffix', p_key_suffix), p_reason, p_operator)
        from back b;
end
$$;

comment on function webhook.inbox_replay(uuid[], text, text, text) is
    'Give dead events a new cycle of attempts; one audit row each, none for the others.';
revoke all on function webhook.inbox_replay(uuid[], text, text, text) from public;
grant execute on function webhook.inbox_replay(uuid[], text, text, text) to penstock_operator;
