-- Once a second by any worker; all of them at once would do the same work, so one does.
create or replace function app.outbox_balance() returns integer
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
set enable_sort = off
as $$
declare
    v_names text[];
    v_allowed integer[];
begin
    if not pg_try_advisory_xact_lock(hashtextextended('penstock.outbox_balance', 0)) then
        return 0;
    end if;
    perform app.outbox_set_aside();
    -- Where nothing is ready no claim comes by that would fetch what was set aside.
    select array_agg(d.name), array_agg(100) into v_names, v_allowed
    from public.outbox_destinations d
    where d.kind <> 'python' and d.enabled and d.name <> all (penstock.paused('destination'))
      and (d.breaker = 'closed' or d.breaker_until <= penstock.clock())
      and not exists (
            select from public.outbox_routes r
            cross join lateral (
                select from public.outbox o
                where (o.topic, o.pos) > (r.route, -1)
                  and (o.topic, o.pos) < (r.route, 9223372036854775807)
                  and o.pos is not null and o.route is not null
                order by o.topic, o.pos limit 1
            ) ready
            where r.destination = d.name);
    if v_names is null then
        return 0;
    end if;
    return app.outbox_refill(v_names, v_allowed);
end
$$;

comment on function app.outbox_balance() is
    'Keep few deliveries ready for each destination, none for one that is shut; how many came back.';
revoke all on function app.outbox_balance() from public;
grant execute on function app.outbox_balance() to penstock_outbox_executor;
