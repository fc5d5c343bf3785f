create or replace function webhook.inbox_discard(
    p_ids uuid[], p_reason text, p_operator text default null
) returns table (id uuid, audit_id uuid)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_ids uuid[];
begin
    if cardinality(p_ids) > 1000 then
        raise exception using errcode = 'PN005', message = 'at most 1000 events in one call';
    end if;
    v_ids := array(
        select e.id from public.webhook_events e
        where e.id = any (p_ids) and e.status = 'dead_letter'
        order by e.seq
        for update skip locked);
    perform webhook.archive_rows(v_ids, 'DISCARDED');
    return query
        select d.id, audit.record('discard', 'public.webhook_events',
                                  jsonb_build_object('id', d.id), p_reason, p_operator)
        from unnest(v_ids) as d (id);
end
$$;

comment on function webhook.inbox_discard(uuid[], text, text) is
    'Give up dead events for good: archived as DISCARDED, still remembered, one audit row each.';
revoke all on function webhook.inbox_discard(uuid[], text, text) from public;
grant execute on function webhook.inbox_discard(uuid[], text, text) to penstock_operator;
