-- From the hot table to the archive and to memory, in one statement: at no moment is an event in
-- neither. An event of a source whose timestamps are not signed is remembered for ever.
create or replace function webhook.archive_rows(p_ids uuid[], p_state text) returns integer
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
    v_count integer;
begin
    with gone as (
        delete from public.webhook_events e where e.id = any (p_ids) returning e.*
    ), remembered as (
        insert into webhook.memory (webhook_id, event_id, body_sha256, received_at, forget_at)
        select g.webhook_id, g.event_id, g.body_sha256, g.received_at,
               case when w.timestamp_signed
                   then greatest(g.received_at, penstock.clock()) + interval '30 days' end
        from gone g
        left join public.webhook_endpoints w on w.id = g.webhook_id
        on conflict (webhook_id, event_id) do nothing
    )
    insert into public.webhook_events_archive
        (id, webhook_id, event_id, payload, signature, received_at, provider, event_type, raw_body,
         content_type, headers, body_sha256, delivery_id, total_attempts, replay_count, lease_epoch,
         finished_token, state, processed_at)
    select g.id, g.webhook_id, g.event_id, g.payload, g.signature, g.received_at, g.provider,
           g.event_type, g.raw_body, g.content_type, g.headers, g.body_sha256, g.delivery_id,
           g.total_attempts, g.replay_count, g.lease_epoch, g.finished_token, p_state,
           coalesce(g.processed_at, penstock.clock())
    from gone g;
    get diagnostics v_count = row_count;
    return v_count;
end
$$;

comment on function webhook.archive_rows(uuid[], text) is
    'Move events to the archive and keep their identity in memory; returns how many.';
revoke all on function webhook.archive_rows(uuid[], text) from public;
