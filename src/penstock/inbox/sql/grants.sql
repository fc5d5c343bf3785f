grant usage on schema webhook to penstock_inbox_ingest, penstock_inbox_executor, penstock_operator,
    penstock_readonly, penstock_auditor, penstock_control;
grant select on webhook.inbox_stats, webhook.inbox_dead, webhook.metrics
    to penstock_operator, penstock_readonly, penstock_auditor, penstock_control;
-- Secrets are only named there, by reference.
grant select on public.webhook_endpoints, public.webhook_routes
    to penstock_operator, penstock_readonly, penstock_auditor, penstock_control;
-- Payloads are not among the columns: penstock.story shows one, to operators, and audits it.
grant select (id, webhook_id, source, event_id, event_type, provider, received_at, total_attempts,
    replay_count, processed_at, dead_at, error_code, error, state)
    on webhook.inbox_all to penstock_operator, penstock_auditor;
grant select on public.webhook_attempts, webhook.conflicts to penstock_operator, penstock_auditor;
-- The marker that handlers write by themselves.
grant select, insert on public.webhook_side_effects to penstock_inbox_executor;

do $$
declare
    v_table text;
begin
    foreach v_table in array array[
        'public.webhook_endpoints', 'public.webhook_events', 'public.webhook_events_archive',
        'public.webhook_events_archive_default', 'public.webhook_attempts',
        'public.webhook_attempts_default', 'public.webhook_effects', 'public.webhook_routes',
        'webhook.memory', 'webhook.bodies', 'webhook.conflicts', 'webhook.tally',
        'webhook.route_functions', 'public.webhook_side_effects'
    ] loop
        execute format('drop policy if exists readers on %s', v_table);
        execute format('create policy readers on %s for select using (true)', v_table);
    end loop;
end
$$;
drop policy if exists handlers on public.webhook_side_effects;
create policy handlers on public.webhook_side_effects for insert with check (true);

insert into penstock.queue (queue, product, dead_view, stats_view, replay, discard, story, kinds)
values ('inbox', 'inbox', 'webhook.inbox_dead', 'webhook.inbox_stats',
        'webhook.inbox_replay', 'webhook.inbox_discard', 'webhook.inbox_story', array['source'])
on conflict (queue) do update set kinds = excluded.kinds;
select webhook.inbox_partitions();
select penstock.put_job('inbox_partitions', 3600);
select penstock.put_job('inbox_keep', 60);
