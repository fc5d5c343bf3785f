grant usage on schema penstock_intake to penstock_operator, penstock_readonly, penstock_auditor,
    penstock_control;
grant usage on schema public to penstock_intake_ingest, penstock_intake_executor,
    penstock_operator, penstock_readonly, penstock_auditor, penstock_control;

-- Reading is for the back office and for the service role (the seed's REST reads); no one changes a
-- table but through functions.
grant select on public.inventory_slots, public.engine_metrics, public.engine_config,
    public.intake_pools to penstock_operator, penstock_auditor, service_role;
grant select on public.engine_metrics, public.engine_config, public.intake_pools,
    public.intake_pool_stats to penstock_readonly, penstock_control, penstock_intake_executor;
grant select (id, pool_id, status, ord, locked_at, hold_expires_at, validated_at,
    commit_started_at, consumed_at) on public.inventory_slots to penstock_readonly;
grant select on public.intake_pool_stats, penstock_intake.dead, penstock_intake.stats
    to penstock_operator, penstock_auditor, penstock_readonly, penstock_control;
grant select on penstock_intake.pool_mark, penstock_intake.pool_stock,
    penstock_intake.retired_slots, penstock_intake.returned to penstock_operator, penstock_auditor;

do $$
declare
    v_table text;
begin
    foreach v_table in array array[
        'public.inventory_slots', 'public.engine_config', 'public.engine_metrics',
        'public.intake_pools', 'penstock_intake.pool_mark', 'penstock_intake.pool_stock',
        'penstock_intake.retired_slots', 'penstock_intake.returned'
    ] loop
        execute format('drop policy if exists readers on %s', v_table);
        execute format('create policy readers on %s for select using (true)', v_table);
    end loop;
end
$$;

insert into penstock.queue (queue, product, dead_view, stats_view, replay, discard, story, kinds)
values ('intake', 'intake', 'penstock_intake.dead', 'penstock_intake.stats',
        'public.intake_replay_items', 'public.intake_discard_items', 'public.intake_story',
        array['pool'])
on conflict (queue) do update set kinds = excluded.kinds;
insert into penstock.queue_config (queue, lease_s) values ('intake', 45)
on conflict (queue) do nothing;
select penstock.put_job('metrics_snapshot', 60, 'intake');
select penstock.put_job('reap_orphaned_slots', 120, 'intake');
select penstock.put_job('intake_expire_holds', 5);
select penstock.put_job('intake_purge_metrics', 3600);
select penstock.put_job('intake_tend', 1);
