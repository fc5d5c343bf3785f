create or replace function app.outbox_serving()
returns table (
    name text, kind text, config jsonb, secret_refs text[], concurrency integer, rate_per_s numeric,
    routes text[], version bigint
)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
    select d.name, d.kind, d.config, d.secret_refs, d.concurrency, d.rate_per_s,
           array_agg(r.route order by r.route), d.version
    from public.outbox_destinations d
    join public.outbox_routes r on r.destination = d.name
    where d.enabled and d.kind <> 'python' and r.enabled
    group by d.name
    order by d.name
$$;

comment on function app.outbox_serving() is 'The destinations that workers deliver to, and their routes.';
revoke all on function app.outbox_serving() from public;
grant execute on function app.outbox_serving() to penstock_outbox_executor;
