create or replace function penstock.resume_target(
    p_target   text,
    p_reason   text,
    p_operator text default null
) returns uuid
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    delete from penstock.pause where target = p_target;
    if not found then
        raise exception using errcode = 'PN011', message = format('%s is not paused', p_target);
    end if;
    return audit.record('resume', 'penstock.pause',
        jsonb_build_object('target', p_target), p_reason, p_operator);
end
$$;

comment on function penstock.resume_target(text, text, text) is 'Lift a pause; audited.';
revoke all on function penstock.resume_target(text, text, text) from public;
grant execute on function penstock.resume_target(text, text, text) to penstock_operator;
