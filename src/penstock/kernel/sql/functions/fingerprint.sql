-- Numbers, ids and quoted parts differ from item to item; what is left groups errors of one kind.
create or replace function penstock.fingerprint(p_code text, p_error text) returns text
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
    select left(encode(sha256(convert_to(coalesce(p_code, '') || '|' ||
        regexp_replace(coalesce(p_error, ''), '[0-9a-fA-F-]{8,}|[0-9]+|''[^'']*''|"[^"]*"', '#', 'g'),
        'UTF8')), 'hex'), 12)
$$;

comment on function penstock.fingerprint(text, text) is
    'A short stable hash of an error without its varying parts, so that like errors group.';
revoke all on function penstock.fingerprint(text, text) from public;
grant execute on function penstock.fingerprint(text, text)
    to penstock_operator, penstock_control, penstock_readonly, penstock_auditor;
