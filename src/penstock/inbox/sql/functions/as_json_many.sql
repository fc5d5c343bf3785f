-- All at once; one by one only if a text among them is bad, because each such guard costs.
create or replace function webhook.as_json_many(p_texts text[]) returns jsonb[]
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
    return array(select t.text::jsonb from unnest(p_texts) with ordinality as t (text, ord)
                 order by t.ord);
exception when data_exception or statement_too_complex then
    return array(select webhook.as_json(t.text)
                 from unnest(p_texts) with ordinality as t (text, ord)
                 order by t.ord);
end
$$;

comment on function webhook.as_json_many(text[]) is
    'Texts as jsonb in order, null where jsonb cannot hold one.';
revoke all on function webhook.as_json_many(text[]) from public;
