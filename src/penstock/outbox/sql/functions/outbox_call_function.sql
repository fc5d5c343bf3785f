-- Runs with the caller's own rights and search path: the allow-list says what may be named, the
-- grant who may call it.
create or replace function app.outbox_call_function(p_function text, p_events jsonb) returns integer
language plpgsql
as $$
begin
    if not app.outbox_function_allowed(p_function) then
        raise exception using errcode = 'PN006',
            message = pg_catalog.format(
                'function %L is not among public.outbox_functions', p_function),
            hint    = 'enter it there, as the owner of the schema, if events may be given to it';
    end if;
    execute pg_catalog.format(
        'select %I.%I(e.event)'
        ' from pg_catalog.jsonb_array_elements($1) with ordinality as e (event, place)'
        ' order by e.place',
        pg_catalog.split_part(p_function, '.', 1), pg_catalog.split_part(p_function, '.', 2))
    using p_events;
    return pg_catalog.jsonb_array_length(p_events);
end
$$;

comment on function app.outbox_call_function(text, jsonb) is
    'Hand events, one after the other, to an allowed function, in the caller''s transaction.';
revoke all on function app.outbox_call_function(text, jsonb) from public;
grant execute on function app.outbox_call_function(text, jsonb) to penstock_outbox_executor;
