-- Every claim asks, mostly in vain: in PL/pgSQL the plan is kept.
create or replace function penstock.paused(p_kind text) returns text[]
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    return array(
        select substr(p.target, length(p_kind) + 2) from penstock.pause p
        where starts_with(p.target, p_kind || '/')
          and (p.until_at is null or p.until_at > penstock.clock()));
end
$$;

comment on function penstock.paused(text) is 'Names paused under a kind: paused(''topic'').';
revoke all on function penstock.paused(text) from public;
grant execute on function penstock.paused(text) to penstock_operator, penstock_readonly;
