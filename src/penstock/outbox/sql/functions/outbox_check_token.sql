create or replace function app.outbox_check_token(p_token uuid) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_bitmapscan = off
as $$
begin
    if p_token is null
       or exists (select from public.outbox o where o.processing_token = p_token)
       or exists (select from public.outbox_joint_leases j where j.token = p_token) then
        raise exception using
            errcode = 'PN201', message = 'a claim needs a token of its own',
            hint = 'use a fresh random UUID for every claim';
    end if;
end
$$;

comment on function app.outbox_check_token(uuid) is 'Refuse a token that a live lease has, or none.';
revoke all on function app.outbox_check_token(uuid) from public;
