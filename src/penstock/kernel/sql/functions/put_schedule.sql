-- Only interval and switch are policy; jobs themselves come from the products that run them.
create or replace function penstock.put_schedule(
    p_job text, p_values jsonb, p_reason text, p_operator text default null
) returns uuid
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_before jsonb;
    v_row penstock.schedule;
begin
    select * into v_row from penstock.schedule s where s.job = p_job for update;
    if not found then
        raise exception using
            errcode = 'PN011',
            message = format('there is no job %L', p_job),
            hint    = 'jobs come from installed products; `penstock export` lists them';
    end if;
    v_before := jsonb_build_object('every_s', v_row.every_s, 'enabled', v_row.enabled);
    v_row := jsonb_populate_record(v_row, p_values);
    update penstock.schedule s
    set every_s = v_row.every_s, enabled = v_row.enabled,
        -- A shorter interval counts from now, not from a time planned under the longer one.
        next_run_at = least(s.next_run_at,
                            penstock.clock() + make_interval(secs => v_row.every_s))
    where s.job = p_job;
    return audit.record('apply', 'penstock.schedule',
        jsonb_build_object('job', p_job, 'before', v_before, 'after', p_values),
        p_reason, p_operator);
end
$$;

comment on function penstock.put_schedule(text, jsonb, text, text) is
    'Set interval and switch of one job; audited.';
revoke all on function penstock.put_schedule(text, jsonb, text, text) from public;
grant execute on function penstock.put_schedule(text, jsonb, text, text) to penstock_control;
