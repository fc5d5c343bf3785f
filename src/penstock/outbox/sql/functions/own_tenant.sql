create or replace function app.own_tenant(p_tenant uuid) returns uuid
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
    v_own uuid := app.current_tenant();
begin
    if v_own is null then
        return p_tenant;
    end if;
    if p_tenant <> v_own then
        raise exception using
            errcode = 'PN007',
            message = 'this session acts for another tenant',
            hint    = 'leave the tenant out, or use the login of a service';
    end if;
    return v_own;
end
$$;

comment on function app.own_tenant(uuid) is
    'The tenant to act for: that of the session if it has one (another raises PN007), else the given.';
revoke all on function app.own_tenant(uuid) from public;
