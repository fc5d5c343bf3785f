-- What is needed to verify the stored bytes again. Not for looking: penstock.story audits that.
create or replace function webhook.stored_event(p_ids uuid[])
returns table (
    id uuid, source text, provider text, raw_body bytea, signature text, headers jsonb,
    content_type text, received_at timestamptz
)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
    select e.id, w.source, e.provider, coalesce(b.raw_body, e.raw_body), e.signature, e.headers,
           e.content_type, e.received_at
    from public.webhook_events e
    left join public.webhook_endpoints w on w.id = e.webhook_id
    left join webhook.bodies b on b.delivery_id = e.delivery_id
    where e.id = any (p_ids)
$$;

comment on function webhook.stored_event(uuid[]) is
    'The bytes as they were received, with their signature, for verifying them again.';
revoke all on function webhook.stored_event(uuid[]) from public;
grant execute on function webhook.stored_event(uuid[]) to penstock_operator, penstock_inbox_executor;
