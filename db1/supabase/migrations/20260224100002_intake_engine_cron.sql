-- Schedules on pg_cron, for projects in which no `penstock work` runs: a worker does these jobs, and
-- more often, from its own table. Where the server has no pg_cron, nothing is scheduled.
--
-- The address and the key of the bridge are kept in the Vault, never in a job's text or a setting of
-- the database, which every role may read. Until both are there the trigger does nothing:
--     select vault.create_secret('http://…/functions/v1/bridge-worker', 'app.bridge_worker_url');
--     select vault.create_secret('…', 'app.service_role_key');
do $cron$
begin
    if not exists (select from pg_catalog.pg_available_extensions where name = 'pg_cron') then
        raise notice 'no schedules: this server has no pg_cron; run `penstock work`';
        return;
    end if;
    begin
        create extension if not exists pg_cron;
    exception when others then
        -- It must be preloaded, and it lives in one database of a server only.
        raise warning 'no schedules: %; run `penstock work`', sqlerrm;
        return;
    end;
    perform cron.schedule('metrics_snapshot', '* * * * *',
        'select public.snapshot_engine_metrics()');
    perform cron.schedule('reap_orphaned_slots', '*/2 * * * *',
        $job$select public.reap_orphaned_slots(interval '10 minutes')$job$);
end
$cron$;

-- A nudge a minute. Its answer is not needed: the bridge runs until its queue is empty, and a call
-- that waits for it would hold a snapshot open all the while.
do $trigger$
begin
    if to_regprocedure('cron.schedule(text,text,text)') is null
       or to_regclass('vault.decrypted_secrets') is null
       or not exists (select from pg_catalog.pg_available_extensions where name = 'pg_net') then
        raise notice 'no drain_queue_trigger: it needs pg_cron, pg_net and the Vault';
        return;
    end if;
    create extension if not exists pg_net;
    perform cron.schedule('drain_queue_trigger', '* * * * *', $job$
        select net.http_post(
            url => s.url,
            headers => jsonb_build_object('content-type', 'application/json',
                                          'authorization', 'Bearer ' || s.key),
            body => '{}'::jsonb,
            timeout_milliseconds => 5000)
        from (select max(decrypted_secret) filter (where name = 'app.bridge_worker_url') as url,
                     max(decrypted_secret) filter (where name = 'app.service_role_key') as key
              from vault.decrypted_secrets) s
        where s.url is not null and s.key is not null
    $job$);
end
$trigger$;
