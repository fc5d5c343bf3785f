create or replace function penstock.is_paused(p_target text) returns boolean
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
    select exists (
        select from penstock.pause
        where target = p_target and (until_at is null or until_at > penstock.clock())
    )
$$;

comment on function penstock.is_paused(text) is 'Whether a target is paused right now.';
revoke all on function penstock.is_paused(text) from public;
grant execute on function penstock.is_paused(text) to penstock_operator, penstock_readonly;
