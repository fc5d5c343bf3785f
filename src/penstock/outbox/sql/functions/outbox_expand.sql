-- Between publish and claim, for events whose topic has more than one route, a pattern or a filter.
-- No route: archived as NO_ROUTE, but what a relay table wants sent is dead. One, and no ordering key:
-- the event takes it and stays the item. Else: one delivery per route, each with its own lease, attempts
-- and dead letter; the event waits for the last of them. Deliveries of one key and route keep its order,
-- so a keyed event always has them.
create or replace function app.outbox_expand(p_limit integer default 500) returns integer
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
    v_seqs bigint[];
    v_none bigint[];
    v_lost bigint[];
    v_one bigint[];
    v_many bigint[];
begin
    if penstock.is_paused('outbox') then
        return 0;
    end if;
    -- The routes are read in several statements: one that went in between would leave an event with no
    -- delivery to wait for. Lock order: routes, then events.
    lock table public.outbox_routes in share mode;
    v_seqs := app.outbox_pick_routed(p_limit);
    if cardinality(v_seqs) = 0 then
        return 0;
    end if;
    select array_agg(c.seq) filter (where c.count = 0 and c.relay is null),
           array_agg(c.seq) filter (where c.count = 0 and c.relay is not null),
           array_agg(c.seq) filter (where c.count = 1 and not c.keyed),
           array_agg(c.seq order by c.seq) filter (where c.count > 1 or (c.count = 1 and c.keyed))
    into v_none, v_lost, v_one, v_many
    from (select o.seq, o.relay, o.ordering_key is not null as keyed,
                 (select count(*) from app.outbox_routes_of(o.topic, o.payload)) as count
          from public.outbox o where o.seq = any (v_seqs)) c;
    if v_none is not null then
        perform app.outbox_archive_rows(v_none, null, 'NO_ROUTE');
    end if;
    if v_lost is not null then
        -- The token is named for the trigger that lets the row of the relay table follow.
        update public.outbox o
        set pos = null, processing_token = null, dead_at = penstock.clock(), error_code = 'NO_ROUTE',
            error = 'no route takes topic ' || o.topic
        where o.seq = any (v_lost);
        perform app.outbox_died(v_lost);
    end if;
    update public.outbox o
    set topic = r.route, route = r.route, event_topic = o.topic,
        pos = nextval('penstock.outbox_next')
    from (select x.seq, f.route from public.outbox x
          cross join lateral app.outbox_routes_of(x.topic, x.payload) f
          where x.seq = any (v_one)) r
    where o.seq = r.seq;
    if v_many is not null then
        perform app.outbox_fan_out(v_many);
    end if;
    return cardinality(v_seqs);
end
$$;

comment on function app.outbox_expand(integer) is
    'Give ready events their routes: none, one, or a delivery for each; returns how many were seen.';
revoke all on function app.outbox_expand(integer) from public;
grant execute on function app.outbox_expand(integer) to penstock_outbox_executor;
