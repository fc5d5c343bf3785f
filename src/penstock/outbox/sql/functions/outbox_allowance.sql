-- Most destinations have neither a rate nor an open breaker: they are read without a lock. The rows of
-- the others stay locked until outbox_spend has booked what was taken, so that two claims cannot draw
-- the same; who finds one locked has its turn at the next claim. Lock order: destinations by name,
-- then events.
create or replace function app.outbox_allowance(p_destinations text[], p_limits integer[])
returns table (name text, allowed integer)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    v_now timestamptz := penstock.clock();
    v_paused text[] := penstock.paused('destination');
begin
    return query
        select d.name, w.wanted
        from unnest(p_destinations, p_limits) as w (name, wanted)
        join public.outbox_destinations d on d.name = w.name
        where d.enabled and d.kind <> 'python' and d.name <> all (v_paused)
          and d.rate_per_s is null and d.breaker = 'closed';
    return query
        with metered as materialized (
            select d.name, d.breaker, d.breaker_until, d.rate_per_s, d.rate_left, d.rate_at
            from public.outbox_destinations d
            where d.name = any (p_destinations) and d.enabled and d.kind <> 'python'
              and d.name <> all (v_paused)
              and (d.rate_per_s is not null or d.breaker <> 'closed')
            order by d.name
            for no key update of d skip locked
        )
        select m.name, least(
            w.wanted,
            case when m.breaker = 'closed' then w.wanted
                 when m.breaker_until <= v_now then 1 else 0 end,
            floor(app.outbox_rate_left(m.rate_per_s, m.rate_left, m.rate_at, v_now)))::integer
        from metered m join unnest(p_destinations, p_limits) as w (name, wanted) on w.name = m.name;
end
$$;

comment on function app.outbox_allowance(text[], integer[]) is
    'How many deliveries each destination may be given now: by pause, breaker and rate.';
revoke all on function app.outbox_allowance(text[], integer[]) from public;
