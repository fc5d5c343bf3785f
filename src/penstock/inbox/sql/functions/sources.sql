create or replace function webhook.sources()
returns table (
    id uuid, source text, provider text, secret_refs text[], tolerance_s integer, max_body integer,
    max_backlog integer, timestamp_signed boolean, public_url text, unhandled text, options jsonb,
    enabled boolean, rotated_at timestamptz
)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
    select w.id, w.source, w.provider, w.secret_refs, w.tolerance_s, w.max_body, w.max_backlog,
           w.timestamp_signed, w.public_url, w.unhandled, w.options, w.enabled, w.rotated_at
    from public.webhook_endpoints w
    order by w.source
$$;

comment on function webhook.sources() is 'Every configured source; secrets as references only.';
revoke all on function webhook.sources() from public;
grant execute on function webhook.sources()
    to penstock_inbox_ingest, penstock_inbox_executor, penstock_operator, penstock_readonly,
       penstock_control;
