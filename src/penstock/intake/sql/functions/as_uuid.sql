-- Messages may be sent by anyone with the right to; a bad id must not break a whole batch.
create or replace function penstock_intake.as_uuid(p_text text) returns uuid
language sql immutable parallel safe
as $$
    select case when p_text ~ '^[0-9a-fA-F]{8}(-?[0-9a-fA-F]{4}){3}-?[0-9a-fA-F]{12}$'
                then p_text::uuid end
$$;

comment on function penstock_intake.as_uuid(text) is 'The UUID that a text is, or NULL.';
revoke all on function penstock_intake.as_uuid(text) from public;
grant execute on function penstock_intake.as_uuid(text)
    to penstock_operator, penstock_control, penstock_readonly, penstock_auditor;
