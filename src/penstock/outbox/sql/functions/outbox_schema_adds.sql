-- More is not always an addition: what is required of events that are there already stops whoever reads
-- them, and so does a field where none but the named ones are accepted. Required fields are a set.
create or replace function app.outbox_schema_adds(p_kept jsonb, p_new jsonb) returns boolean
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
declare
    v_beside constant text[] := array['properties', 'required'];
    v_kept jsonb := p_kept -> 'properties';
    v_new jsonb := p_new -> 'properties';
    v_before jsonb := coalesce(p_kept -> 'required', '[]');
    v_after jsonb := coalesce(p_new -> 'required', '[]');
begin
    if p_kept = p_new then
        return true;
    end if;
    if jsonb_typeof(v_kept) is distinct from 'object' or jsonb_typeof(v_new) is distinct from 'object'
       or p_kept - v_beside <> p_new - v_beside
       or not (v_before @> v_after and v_after @> v_before)
       or p_kept -> 'additionalProperties' = 'false'
          and v_new - array(select jsonb_object_keys(v_kept)) <> '{}' then
        return false;
    end if;
    return not exists (
        select from jsonb_each(v_kept) k
        where not coalesce(app.outbox_schema_adds(k.value, v_new -> k.key), false));
end
$$;

comment on function app.outbox_schema_adds(jsonb, jsonb) is
    'Whether a JSON Schema is a kept one with nothing but optional fields added.';
revoke all on function app.outbox_schema_adds(jsonb, jsonb) from public;
