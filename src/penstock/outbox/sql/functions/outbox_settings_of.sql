create or replace function app.outbox_settings_of(p_row jsonb) returns jsonb
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
    select jsonb_object_agg(e.key, e.value) from jsonb_each(p_row) e
    where e.key in ('kind', 'config', 'secret_refs', 'concurrency', 'rate_per_s', 'enabled',
                    'breaker_after', 'breaker_pause_s')
$$;

comment on function app.outbox_settings_of(jsonb) is 'What of a destination is set by people.';
revoke all on function app.outbox_settings_of(jsonb) from public;
