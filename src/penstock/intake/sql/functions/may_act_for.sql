-- Identity comes from the verified token. Only a trusted caller (executor, operator) may act for
-- somebody else; a login without any token is an application's own back end. A role that does not
-- exist (installed without roles) has no members.
create or replace function penstock_intake.may_act_for(variadic p_user_ids text[]) returns boolean
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
    v_claims jsonb := nullif(current_setting('request.jwt.claims', true), '')::jsonb;
    v_caller name := coalesce(nullif(current_setting('role', true), 'none'), session_user);
begin
    return v_claims is null
        or coalesce(pg_has_role(
            v_caller, to_regrole('penstock_intake_executor')::oid, 'member'), false)
        or coalesce(pg_has_role(
            v_caller, to_regrole('penstock_operator')::oid, 'member'), false)
        or coalesce(p_user_ids <@ array[nullif(v_claims ->> 'sub', '')], false);
end
$$;

comment on function penstock_intake.may_act_for(text[]) is
    'Whether the caller may claim or ask for these users.';
revoke all on function penstock_intake.may_act_for(text[]) from public;
