create or replace function penstock.paused(p_kind text) returns text[]
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
    select coalesce(array_agg(substr(target, length(p_kind) + 2)), '{}')
    from penstock.pause
    where target like replace(p_kind, '_', '\_') || '/%'
      and (until_at is null or until_at > penstock.clock())
$$;

comment on function penstock.paused(text) is 'Names paused under a kind: paused(''topic'').';
revoke all on function penstock.paused(text) from public;
grant execute on function penstock.paused(text) to penstock_operator, penstock_readonly;
