-- Ready events that need the step between publish and claim. With configured routes that is every
-- topic that is not plain; with Python handlers alone only the topics that several of them share: an
-- event whose handler is not deployed yet must wait for it.
create or replace function app.outbox_pick_routed(p_limit integer) returns bigint[]
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_bitmapscan = off
as $$
declare
    v_wm bigint;
    v_joint int8multirange;
    v_limit integer := least(greatest(coalesce(p_limit, 100), 1), 1000);
    v_paused text[] := penstock.paused('topic');
    v_topics text[];
begin
    perform app.outbox_enter_rows();
    v_wm := app.outbox_mark();
    v_joint := app.outbox_joint();
    if exists (
        select from public.outbox_routes r
        join public.outbox_destinations d on d.name = r.destination
        where r.enabled and d.kind <> 'python'
    ) then
        v_topics := v_paused || array(select p.topic from app.outbox_plain_topics() p);
        return array(
            select o.seq from public.outbox o
            where o.pos > v_wm and o.route is null and not v_joint @> o.seq
              and o.topic <> all (v_topics)
            order by o.pos limit v_limit for update skip locked);
    end if;
    v_topics := array(
        select r.topic from public.outbox_routes r
        where r.enabled and r.topic <> all (v_paused)
        except select p.topic from app.outbox_plain_topics() p);
    if cardinality(v_topics) = 0 then
        return v_topics::bigint[];
    end if;
    return array(
        select o.seq from public.outbox o
        where o.pos > v_wm and o.route is null and not v_joint @> o.seq
              and o.topic = any (v_topics)
        order by o.pos limit v_limit for update skip locked);
end
$$;

comment on function app.outbox_pick_routed(integer) is
    'Lock ready events whose routes have to be looked up; their numbers.';
revoke all on function app.outbox_pick_routed(integer) from public;
