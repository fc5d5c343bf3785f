-- The policy round_robin: every tenant with ready events gets an equal share, however much another has
-- waiting. One probe per tenant, from a random one on, so that with more tenants than the limit all have
-- their turn. One share is left over, for the oldest of all.
create or replace function app.outbox_shares(
    p_limit integer, p_topics text[], p_skip text[], p_idle uuid[], p_unrouted boolean
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
begin
    if cardinality(v_tenants) < p_limit then
        v_tenants := v_tenants || app.outbox_ready_tenants(
            null, v_start, p_limit - cardinality(v_tenants));
    end if;
    v_tenants := array(select t.tenant_id from unnest(v_tenants) as t (tenant_id)
                       where t.tenant_id <> all (p_idle));
    v_share := greatest(p_limit / (cardinality(v_tenants) + 1), 1);
    return array(
        select x.tid from unnest(v_tenants) as t (tenant_id)
        cross join lateral (
            select o.ctid as tid from public.outbox o
            where o.tenant_id = t.tenant_id and o.pos > v_wm and not v_joint @> o.seq
              and (p_topics is null or o.topic = any (p_topics)) and o.topic <> all (p_skip)
              and (not p_unrouted or o.route is null)
            order by o.pos limit v_share for update skip locked) x
        limit p_limit);
end
$$;

comment on function app.outbox_shares(integer, text[], text[], uuid[], boolean) is
    'Lock ready events in equal shares of their tenants; only those without a route, if asked for.';
revoke all on function app.outbox_shares(integer, text[], text[], uuid[], boolean) from public;
