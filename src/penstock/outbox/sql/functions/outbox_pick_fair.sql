-- The policy round_robin: every tenant with ready events gets an equal share of a claim, however much
-- another has waiting. One probe per tenant, from a random one on, so that with more tenants than the
-- limit all have their turn. One share, and what tenants with few events leave over, goes to the oldest
-- of all, with or without a tenant.
create or replace function app.outbox_pick_fair(
    p_limit integer, p_topics text[], p_skip text[], p_idle uuid[]
) returns tid[]
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_bitmapscan = off
as $$
declare
    v_wm bigint := app.outbox_mark();
    v_joint int8multirange := app.outbox_joint();
    v_start uuid := gen_random_uuid();
    v_tenants uuid[] := app.outbox_ready_tenants(v_start, null, p_limit);
    v_share integer;
    v_tids tid[];
begin
    if cardinality(v_tenants) < p_limit then
        v_tenants := v_tenants || app.outbox_ready_tenants(
            null, v_start, p_limit - cardinality(v_tenants));
    end if;
    v_tenants := array(select t.tenant_id from unnest(v_tenants) as t (tenant_id)
                       where t.tenant_id <> all (p_idle));
    v_share := greatest(p_limit / (cardinality(v_tenants) + 1), 1);
    v_tids := array(
        select x.tid from unnest(v_tenants) as t (tenant_id)
        cross join lateral (
            select o.ctid as tid from public.outbox o
            where o.tenant_id = t.tenant_id and o.pos > v_wm and not v_joint @> o.seq
              and (p_topics is null or o.topic = any (p_topics)) and o.topic <> all (p_skip)
            order by o.pos limit v_share for update skip locked) x
        limit p_limit);
    return v_tids || array(
        select o.ctid from public.outbox o
        where o.pos > v_wm and not v_joint @> o.seq and o.ctid <> all (v_tids)
          and coalesce(o.tenant_id <> all (p_idle), true)
          and (p_topics is null or o.topic = any (p_topics)) and o.topic <> all (p_skip)
        order by o.pos
        limit p_limit - cardinality(v_tids) for update skip locked);
end
$$;

comment on function app.outbox_pick_fair(integer, text[], text[], uuid[]) is
    'Lock ready events, in equal shares of their tenants.';
revoke all on function app.outbox_pick_fair(integer, text[], text[], uuid[]) from public;
