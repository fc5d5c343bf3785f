-- From the first on, be it the nil UUID, where p_from is null.
create or replace function app.outbox_ready_tenants(p_from uuid, p_to uuid, p_limit integer)
returns uuid[]
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_bitmapscan = off
as $$
begin
    return array(
        with recursive walk as (
            (select o.tenant_id, 1 as n from public.outbox o
             where o.pos is not null
               and o.tenant_id >= coalesce(p_from, '00000000-0000-0000-0000-000000000000')
               and o.tenant_id is distinct from p_from
             order by o.tenant_id limit 1)
            union all
            select x.tenant_id, w.n + 1 from walk w
            cross join lateral (
                select o.tenant_id from public.outbox o
                where o.pos is not null and o.tenant_id > w.tenant_id
                order by o.tenant_id limit 1) x
            where w.n < p_limit and (p_to is null or x.tenant_id <= p_to)
        )
        select w.tenant_id from walk w where p_to is null or w.tenant_id <= p_to);
end
$$;

comment on function app.outbox_ready_tenants(uuid, uuid, integer) is
    'Tenants with ready events above one and up to another, at most so many; one probe each.';
revoke all on function app.outbox_ready_tenants(uuid, uuid, integer) from public;
