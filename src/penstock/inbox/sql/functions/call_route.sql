-- Runs with the caller's own rights and search path: the allow-list says what may be named, the
-- grant who may call it.
create or replace function webhook.call_route(p_function text, p_event jsonb) returns void
language plpgsql
as $$
begin
    if not webhook.route_allowed(p_function) then
        raise exception using errcode = 'PN006',
            message = pg_catalog.format(
                'function %L is not among webhook.route_functions', p_function);
    end if;
    execute pg_catalog.format('select %I.%I($1)', pg_catalog.split_part(p_function, '.', 1),
                              pg_catalog.split_part(p_function, '.', 2))
    using p_event;
end
$$;

comment on function webhook.call_route(text, jsonb) is
    'Hand an event to an allowed function, in the caller''s transaction.';
revoke all on function webhook.call_route(text, jsonb) from public;
grant execute on function webhook.call_route(text, jsonb) to penstock_inbox_executor;
