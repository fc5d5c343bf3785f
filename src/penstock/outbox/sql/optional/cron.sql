-- Optional, for databases that no `penstock work` serves: pg_cron does the outbox's housekeeping, and
-- pg_net nudges POST /api/internal/outbox-relay while something waits. Run it as a login that may
-- create extensions and is a member of penstock_outbox_executor; running it again changes nothing.
--
-- Address and secret are kept in the Vault, never in a job's text, which cron.job shows:
--     select vault.create_secret('https://…/api/internal/outbox-relay', 'app.outbox_relay_url');
--     select vault.create_secret('…', 'app.outbox_relay_secret');
-- Until both are there, the nudge does nothing. pg_net keeps queued requests, headers included, in
-- net.http_request_queue: take the rights on it from PUBLIC.
do $housekeeping$
begin
    if not exists (select from pg_catalog.pg_available_extensions where name = 'pg_cron') then
        raise notice 'no jobs: this server has no pg_cron; run `penstock work`';
        return;
    end if;
    begin
        create extension if not exists pg_cron;
    exception when others then
        -- It must be preloaded, and it lives in one database of a server only.
        raise warning 'no jobs: %; run `penstock work`', sqlerrm;
        return;
    end;
    perform cron.schedule('outbox-partitions', '7 * * * *', 'select app.outbox_partitions()');
    perform cron.schedule('outbox-check-keys', '*/10 * * * *', 'select app.outbox_check_keys()');
    perform cron.schedule('outbox-dedupe', '* * * * *', 'select app.outbox_purge_dedupe()');
    perform cron.schedule('outbox-retention', '*/10 * * * *', 'select app.outbox_purge_relays()');
    perform cron.schedule('outbox-removals', '* * * * *',
                          'select app.outbox_remove_step(p_limit => 10000)');
    perform cron.schedule('outbox-alerts', '*/5 * * * *', 'select app.outbox_tend_alerts()');
end
$housekeeping$;

-- One request at most in ten seconds, and none while nothing waits: the route works the queue off, so
-- posting every row would only repeat what is already under way.
do $relay$
declare
    v_job text := $job$
        select net.http_post(
            url => s.url,
            body => jsonb_build_object('table', 'public.outbox', 'id', w.id),
            headers => jsonb_build_object('content-type', 'application/json',
                                          'x-outbox-secret', s.secret),
            timeout_milliseconds => 10000)
        from (select max(decrypted_secret) filter (where name = 'app.outbox_relay_url') as url,
                     max(decrypted_secret) filter (where name = 'app.outbox_relay_secret') as secret
              from vault.decrypted_secrets) s,
             (select app.outbox_waiting() as id) w
        where s.url is not null and s.secret is not null and w.id is not null
    $job$;
begin
    if to_regprocedure('cron.schedule(text,text,text)') is null
       or to_regclass('vault.decrypted_secrets') is null
       or not exists (select from pg_catalog.pg_available_extensions where name = 'pg_net') then
        raise notice 'no job outbox-relay: it needs pg_cron, pg_net and the Vault';
        return;
    end if;
    create extension if not exists pg_net;
    begin
        perform cron.schedule('outbox-relay', '10 seconds', v_job);
    exception when others then
        -- Seconds came with pg_cron 1.5. A sixth field is no way out: older ones ignore it.
        raise warning 'outbox-relay runs every minute only: %', sqlerrm;
        perform cron.schedule('outbox-relay', '* * * * *', v_job);
    end;
end
$relay$;
