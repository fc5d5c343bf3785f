-- Ready events that need the step between publish and claim. With configured routes that is every
-- topic that is not plain; with Python handlers alone only the topics that several of them share: an
-- event whose handler is not deployed yet must wait for it. By the policy round_robin each tenant has its
-- share of the step, as of a claim.
create or replace function app.outbox_pick_routed(p_limit integer) returns bigint[]
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_bitmapscan = off
as $$
declare
    v_limit integer := least(greatest(coalesce(p_limit, 100), 1), 1000);
    v_topics text[];
    v_skip text[] := penstock.paused('topic');
    v_tids tid[];
    v_seqs bigint[] := '{}';
    v_wm bigint;
    v_joint int8multirange;
begin
    perform app.outbox_enter_rows();
    if exists (
        select from public.outbox_routes r
        join public.outbox_destinations d on d.name = r.destination
        where r.enabled and d.kind <> 'python'
    ) then
        v_skip := v_skip || array(select p.topic from app.outbox_plain_topics() p);
    else
        v_topics := array(
            select r.topic from public.outbox_routes r where r.enabled
            except select p.topic from app.outbox_plain_topics() p);
        if cardinality(v_topics) = 0 then
            return v_seqs;
        end if;
    end if;
    if (select c.fairness = 'round_robin' from penstock.queue_config c where c.queue = 'outbox') then
        v_tids := app.outbox_shares(v_limit, v_topics, v_skip, '{}', true);
        v_seqs := array(select o.seq from public.outbox o where o.ctid = any (v_tids));
    end if;
    v_wm := app.outbox_mark();
    v_joint := app.outbox_joint();
    return v_seqs || array(
        select o.seq from public.outbox o
        where o.pos > v_wm and o.route is null and not v_joint @> o.seq
          and (v_topics is null or o.topic = any (v_topics)) and o.topic <> all (v_skip)
          and o.seq <> all (v_seqs)
        order by o.pos limit v_limit - cardinality(v_seqs) for update skip locked);
end
$$;

comment on function app.outbox_pick_routed(integer) is
    'Lock ready events whose routes have to be looked up; their numbers.';
revoke all on function app.outbox_pick_routed(integer) from public;
