-- What is needed to verify stored bytes again, and nothing to look at in passing: reading them is
-- an audited act, as penstock.story is.
create or replace function webhook.stored_event(
    p_ids uuid[], p_reason text, p_operator text default null
) returns table (
    id uuid, source text, provider text, raw_body bytea, signature text, headers jsonb,
    content_type text, received_at timestamptz
)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    perform audit.record('verify', 'public.webhook_events', jsonb_build_object('ids', p_ids),
                         p_reason, p_operator);
    return query
        select e.id, w.source, e.provider, coalesce(b.raw_body, e.raw_body), e.signature, e.headers,
               e.content_type, e.received_at
        from public.webhook_events e
        left join public.webhook_endpoints w on w.id = e.webhook_id
        left join webhook.bodies b on b.delivery_id = e.delivery_id
        where e.id = any (p_ids);
end
$$;

comment on function webhook.stored_event(uuid[], text, text) is
    'The bytes as they were received, with their signature, for verifying them again; audited.';
revoke all on function webhook.stored_event(uuid[], text, text) from public;
grant execute on function webhook.stored_event(uuid[], text, text) to penstock_operator;
