create or replace function app.outbox_routing()
returns table (plain_routes text[], to_expand boolean)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
    select array(select p.route from app.outbox_plain_topics() p),
           (select count(*) from public.outbox_routes r where r.enabled)
               > (select count(*) from app.outbox_plain_topics())
           or exists (
                select from public.outbox_routes r
                join public.outbox_destinations d on d.name = r.destination
                where r.enabled and d.kind <> 'python')
$$;

comment on function app.outbox_routing() is
    'The routes whose topics are claimed directly, and whether outbox_expand has something to do.';
revoke all on function app.outbox_routing() from public;
grant execute on function app.outbox_routing() to penstock_outbox_executor;
