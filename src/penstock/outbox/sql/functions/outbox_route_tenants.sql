-- From a random one on, so that with more tenants than the limit all have their turn.
create or replace function app.outbox_route_tenants(p_route text, p_limit integer, p_aside boolean)
returns uuid[]
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    c_last constant uuid := 'ffffffff-ffff-ffff-ffff-ffffffffffff';
    v_start uuid := gen_random_uuid();
    v_found uuid[] := app.outbox_walk_tenants(p_route, v_start, c_last, p_limit, p_aside);
begin
    return v_found || app.outbox_walk_tenants(
        p_route, null, v_start, p_limit - cardinality(v_found), p_aside);
end
$$;

comment on function app.outbox_route_tenants(text, integer, boolean) is
    'Some tenants with deliveries of a route that are ready, or set aside.';
revoke all on function app.outbox_route_tenants(text, integer, boolean) from public;
