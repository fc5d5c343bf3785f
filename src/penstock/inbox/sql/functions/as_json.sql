-- Text that is valid JSON and still no jsonb: \u0000, lone surrogates, 1e100000, deep nesting.
create or replace function webhook.as_json(p_text text) returns jsonb
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
    return p_text::jsonb;
exception when data_exception or statement_too_complex then
    return null;
end
$$;

comment on function webhook.as_json(text) is
    'The text as jsonb, or null where jsonb cannot hold it.';
revoke all on function webhook.as_json(text) from public;
