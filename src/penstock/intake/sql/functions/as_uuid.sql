-- Messages may be sent by anyone with the right to; a bad id must not break a whole batch. Three
-- cheap tests, because one expression that says it all takes five times as long.
create or replace function penstock_intake.as_uuid(p_text text) returns uuid
language sql immutable parallel safe
as $$
    select case when p_text like '________-____-____-____-____________'
                 and p_text !~ '[^0-9a-fA-F-]' and length(replace(p_text, '-', '')) = 32
                then p_text::uuid end
$$;

comment on function penstock_intake.as_uuid(text) is 'The UUID that a text is, or NULL.';
revoke all on function penstock_intake.as_uuid(text) from public;
grant execute on function penstock_intake.as_uuid(text)
    to penstock_operator, penstock_control, penstock_readonly, penstock_auditor;
