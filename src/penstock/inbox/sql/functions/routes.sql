create or replace function webhook.routes()
returns table (source text, pattern text, kind text, target text, secret_ref text)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
    select r.source, r.pattern, r.kind, r.target, r.secret_ref
    from public.webhook_routes r
    where r.enabled
    order by r.source, r.pattern
$$;

comment on function webhook.routes() is 'Routes in use.';
revoke all on function webhook.routes() from public;
grant execute on function webhook.routes() to penstock_inbox_executor, penstock_operator;
