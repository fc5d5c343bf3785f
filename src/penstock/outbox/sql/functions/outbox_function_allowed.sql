create or replace function app.outbox_function_allowed(p_function text) returns boolean
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
    select exists (select from public.outbox_functions f where f.name = p_function)
$$;

comment on function app.outbox_function_allowed(text) is
    'Whether a destination may name this function.';
revoke all on function app.outbox_function_allowed(text) from public;
grant execute on function app.outbox_function_allowed(text) to penstock_outbox_executor;
