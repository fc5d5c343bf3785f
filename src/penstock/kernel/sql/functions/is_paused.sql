-- Every claim asks: in PL/pgSQL the plan is kept.
create or replace function penstock.is_paused(p_target text) returns boolean
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    return exists (
        select from penstock.pause p
        where p.target = p_target and (p.until_at is null or p.until_at > penstock.clock()));
end
$$;

comment on function penstock.is_paused(text) is 'Whether a target is paused right now.';
revoke all on function penstock.is_paused(text) from public;
grant execute on function penstock.is_paused(text) to penstock_operator, penstock_readonly;
