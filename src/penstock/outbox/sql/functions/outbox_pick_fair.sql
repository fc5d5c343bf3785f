-- What tenants with few events leave over of their shares goes to the oldest of all, with or without a
-- tenant.
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
    v_tids tid[] := app.outbox_shares(p_limit, p_topics, p_skip, p_idle, false);
begin
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
