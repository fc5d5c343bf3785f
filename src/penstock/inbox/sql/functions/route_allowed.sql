create or replace function webhook.route_allowed(p_function text) returns boolean
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
    select exists (select from webhook.route_functions f where f.name = p_function)
$$;

comment on function webhook.route_allowed(text) is 'Whether a route may name this function.';
revoke all on function webhook.route_allowed(text) from public;
grant execute on function webhook.route_allowed(text) to penstock_inbox_executor;
