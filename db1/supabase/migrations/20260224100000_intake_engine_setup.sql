-- Written by tools/supabase_trees.py; change the package's SQL, then run `make fmt`.
-- Penstock schema: kernel; types and tables of intake.
-- Run it in one transaction:  psql -1 -v ON_ERROR_STOP=1 -f FILE

do $lock$ begin perform pg_catalog.pg_advisory_xact_lock(5783942107311); end $lock$;
set local search_path = pg_catalog, pg_temp;
set local check_function_bodies = off;
set local client_min_messages = warning;
set local row_security = on;

-- Creates the groups that are missing and lets the migrating login act as their owner. Needs
-- CREATEROLE, nothing more. Roles belong to the whole cluster: another database may be creating the
-- same ones at this moment, so being second is no error.
do $roles$
declare
    v_role text;
    v_grant record;
begin
    foreach v_role in array array[
        'penstock_owner',
        'penstock_intake_ingest', 'penstock_intake_executor',
        'penstock_outbox_ingest', 'penstock_outbox_executor',
        'penstock_payments_ingest', 'penstock_payments_executor',
        'penstock_inbox_ingest', 'penstock_inbox_executor',
        'penstock_ledger_writer', 'penstock_operator', 'penstock_control',
        'penstock_readonly', 'penstock_auditor'
    ] loop
        continue when exists (select from pg_catalog.pg_roles where rolname = v_role);
        begin
            execute format('create role %I nologin', v_role);
        exception when duplicate_object or unique_violation then
            null;
        end;
    end loop;

    -- From version 16 on the creator of a role administers it but is not yet a member of it.
    if (select not rolsuper from pg_catalog.pg_roles where rolname = current_user) then
        if current_setting('server_version_num')::integer < 160000 then
            if not pg_has_role(current_user, 'penstock_owner', 'member') then
                execute format('grant penstock_owner to %I', current_user);
            end if;
        elsif not (pg_has_role(current_user, 'penstock_owner', 'set')
                   and pg_has_role(current_user, 'penstock_owner', 'usage')) then
            execute format('grant penstock_owner to %I with inherit true, set true', current_user);
        end if;
    end if;

    -- Where Supabase's roles exist they join our groups; they themselves are never altered.
    for v_grant in
        select ours.rolname as ours, theirs.rolname as theirs
        from (values
            ('penstock_intake_ingest', 'authenticated'), ('penstock_intake_ingest', 'service_role'),
            ('penstock_intake_executor', 'service_role'),
            ('penstock_outbox_ingest', 'service_role'), ('penstock_outbox_executor', 'service_role'),
            ('penstock_payments_ingest', 'service_role'),
            ('penstock_payments_executor', 'service_role'),
            ('penstock_inbox_ingest', 'service_role'), ('penstock_inbox_executor', 'service_role')
        ) as wanted (ours, theirs)
        join pg_catalog.pg_roles ours on ours.rolname = wanted.ours
        join pg_catalog.pg_roles theirs on theirs.rolname = wanted.theirs
        where not pg_has_role(theirs.oid, ours.oid, 'member')
    loop
        begin
            execute format('grant %I to %I', v_grant.ours, v_grant.theirs);
        exception when insufficient_privilege then
            raise warning 'could not grant % to %: %', v_grant.ours, v_grant.theirs, sqlerrm;
        end;
    end loop;
end
$roles$;

-- kernel: only where it is not installed
do $guard$
begin
    if to_regclass('penstock.migration') is null then
        return;
    end if;
    if exists (select from penstock.migration where product = 'kernel') then
        raise exception using errcode = 'PN101',
            message = 'kernel' || ' is already installed here',
            hint = 'print the upgrade instead: penstock schema print --only kernel --from VERSION';
    end if;
end
$guard$;

-- kernel: schemas
create schema if not exists "penstock" authorization penstock_owner;

-- kernel: schemas
create schema if not exists "audit" authorization penstock_owner;

-- kernel: schemas
set local penstock.argument = 'penstock';
-- Lets the owner of our objects create in a schema that is not its own, such as public.
do $share$
declare
    v_schema name := current_setting('penstock.argument');
begin
    if (select pg_get_userbyid(nspowner) <> 'penstock_owner'
        from pg_namespace where nspname = v_schema)
       and not (has_schema_privilege('penstock_owner', v_schema, 'create')
                and has_schema_privilege('penstock_owner', v_schema, 'usage')) then
        execute format('grant usage, create on schema %I to penstock_owner', v_schema);
    end if;
end
$share$;

-- kernel: schemas
set local penstock.argument = 'audit';
-- Lets the owner of our objects create in a schema that is not its own, such as public.
do $share$
declare
    v_schema name := current_setting('penstock.argument');
begin
    if (select pg_get_userbyid(nspowner) <> 'penstock_owner'
        from pg_namespace where nspname = v_schema)
       and not (has_schema_privilege('penstock_owner', v_schema, 'create')
                and has_schema_privilege('penstock_owner', v_schema, 'usage')) then
        execute format('grant usage, create on schema %I to penstock_owner', v_schema);
    end if;
end
$share$;

set local role penstock_owner;

-- kernel: default rights
alter default privileges revoke execute on functions from public;

reset role;

-- kernel/schema.sql
create schema if not exists "penstock" authorization penstock_owner;
create schema if not exists "audit" authorization penstock_owner;
comment on schema penstock is 'Penstock kernel: queues, leases, positions, schedule, pauses.';
comment on schema audit is 'Append-only record of every operator action.';

set local role penstock_owner;

-- kernel/functions/alert.sql
create or replace function penstock.alert(
    p_queue text, p_ids uuid[], p_topics text[], p_states text[], p_codes text[], p_errors text[]
) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    if cardinality(p_ids) > 0 and exists (
        select from pg_proc p
        join pg_namespace n on n.oid = p.pronamespace
        join pg_roles r on r.oid = p.proowner
        where n.nspname = 'app' and p.proname = 'outbox_alert_items' and r.rolname = current_user
          and p.proargtypes = concat_ws(' ', 'text'::regtype::oid, 'uuid[]'::regtype::oid,
              'text[]'::regtype::oid, 'text[]'::regtype::oid, 'text[]'::regtype::oid,
              'text[]'::regtype::oid)::oidvector) then
        perform app.outbox_alert_items(p_queue, p_ids, p_topics, p_states, p_codes, p_errors);
    end if;
end
$$;
comment on function penstock.alert(text, uuid[], text[], text[], text[], text[]) is
    'Alert about dead and held items of a queue, where the outbox is installed.';
revoke all on function penstock.alert(text, uuid[], text[], text[], text[], text[]) from public;

-- kernel/functions/begin_sweep.sql
create or replace function penstock.begin_sweep(p_name text)
returns table (lo bigint, hi bigint)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_position penstock.position;
    v_now_ms bigint := penstock.milliseconds(clock_timestamp());
    v_xid bigint;
begin
    select * into v_position from penstock.position where name = p_name;
    -- An older snapshot would not show what has committed since. Distances are absolute: a clock
    -- that was set back must not stop the sweeps until it has caught up.
    if current_setting('transaction_isolation') <> 'read committed'
       or abs(v_now_ms - pg_sequence_last_value(v_position.swept_ms)) < v_position.sweep_ms
       or not pg_try_advisory_xact_lock(hashtextextended('penstock.sweep/' || p_name, 0)) then
        return;
    end if;
    perform setval(v_position.swept_ms, v_now_ms);
    v_xid := pg_sequence_last_value(v_position.mark_xid);
    if v_xid = 0 then
        if abs(v_now_ms - pg_sequence_last_value(v_position.mark_at_ms))
           >= 2 * v_position.sweep_ms then
            perform setval(v_position.mark_xid, pg_current_xact_id()::text::bigint);
        end if;
    elsif pg_snapshot_xmin(pg_current_snapshot())::text::bigint >= v_xid then
        perform setval(v_position.settled, pg_sequence_last_value(v_position.mark_pos));
        -- Sequences are not undone: whoever is stopped between these leaves the old mark without an
        -- id, which only costs time. A new mark beside the old id would settle too early.
        perform setval(v_position.mark_xid, 0);
        perform setval(v_position.mark_at_ms, v_now_ms);
        perform setval(v_position.mark_pos, pg_sequence_last_value(v_position.watermark));
    end if;
    return query select pg_sequence_last_value(v_position.floor),
                        pg_sequence_last_value(v_position.watermark);
end
$$;
comment on function penstock.begin_sweep(text) is
    'The range of positions to look through for late commits, if a sweep is due now.';
revoke all on function penstock.begin_sweep(text) from public;

-- kernel/functions/claim_jobs.sql
create or replace function penstock.claim_jobs(p_names text[], p_lease_s integer)
returns table (job text, token uuid)
language sql security definer
set search_path = pg_catalog, pg_temp
as $$
    with due as materialized (
        select s.job
        from penstock.schedule s
        where s.enabled
          and s.job = any (p_names)
          and penstock.may_run(s.product)
          and s.next_run_at <= penstock.clock()
          and (s.lease_expires_at is null or s.lease_expires_at <= penstock.clock())
        order by s.next_run_at
        limit 100
        for update skip locked
    )
    update penstock.schedule s
    set lease_token = gen_random_uuid(),
        lease_expires_at = penstock.clock()
            + make_interval(secs => least(greatest(p_lease_s, 1), 3600)),
        last_started_at = penstock.clock()
    from due
    where s.job = due.job
    returning s.job, s.lease_token
$$;
comment on function penstock.claim_jobs(text[], integer) is
    'Lease the due jobs among those this worker can run.';
revoke all on function penstock.claim_jobs(text[], integer) from public;
grant execute on function penstock.claim_jobs(text[], integer)
    to penstock_outbox_executor, penstock_intake_executor, penstock_payments_executor,
       penstock_inbox_executor, penstock_operator;

-- kernel/functions/clock.sql
create or replace function penstock.clock() returns timestamptz
language sql volatile parallel safe
as $$ select clock_timestamp() $$;
comment on function penstock.clock() is 'Database time; the only clock that leases know.';
revoke all on function penstock.clock() from public;
grant execute on function penstock.clock() to public;

-- kernel/functions/create_position.sql
create or replace function penstock.create_position(p_name text) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_part text;
begin
    if p_name !~ '^[a-z][a-z0-9_]{0,40}$' then
        raise exception using errcode = 'PN005', message = format('bad position name %L', p_name);
    end if;
    if exists (select from penstock.position where name = p_name) then
        return;
    end if;
    foreach v_part in array array[
        'next', 'wm', 'floor', 'settled', 'mark', 'xid', 'at', 'swept', 'net', 'due', 'lease'
    ] loop
        execute format('create sequence penstock.%I minvalue 0 start 0',
                       p_name || '_' || v_part);
        perform setval(format('penstock.%I', p_name || '_' || v_part)::regclass, 0);
    end loop;
    insert into penstock.position
        (name, next_pos, watermark, floor, settled, mark_pos, mark_xid, mark_at_ms,
         swept_ms, net_ms, due_ms, lease_ms)
    values (p_name,
        format('penstock.%I', p_name || '_next'), format('penstock.%I', p_name || '_wm'),
        format('penstock.%I', p_name || '_floor'), format('penstock.%I', p_name || '_settled'),
        format('penstock.%I', p_name || '_mark'), format('penstock.%I', p_name || '_xid'),
        format('penstock.%I', p_name || '_at'), format('penstock.%I', p_name || '_swept'),
        format('penstock.%I', p_name || '_net'), format('penstock.%I', p_name || '_due'),
        format('penstock.%I', p_name || '_lease'));
end
$$;
comment on function penstock.create_position(text) is
    'Make the sequences that hold positions, watermark and sweep marks of one ready index.';
revoke all on function penstock.create_position(text) from public;

-- kernel/functions/discard.sql
create or replace function penstock.discard(
    p_queue text, p_ids uuid[], p_reason text, p_operator text default null
) returns table (id uuid, audit_id uuid)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    v_verb text;
begin
    select q.discard into v_verb from penstock.queue q where q.queue = p_queue;
    if v_verb is null then
        raise exception using errcode = 'PN011', message = format('there is no queue %L', p_queue);
    end if;
    return query execute format(
        'select r.id, r.audit_id from %I.%I(p_ids => $1, p_reason => $2, p_operator => $3) r',
        split_part(v_verb, '.', 1), split_part(v_verb, '.', 2))
    using p_ids, p_reason, p_operator;
end
$$;
comment on function penstock.discard(text, uuid[], text, text) is
    'Give up dead or held items of any queue; returns those that were, each with its audit row.';
revoke all on function penstock.discard(text, uuid[], text, text) from public;
grant execute on function penstock.discard(text, uuid[], text, text) to penstock_operator;

-- kernel/functions/end_sweep.sql
create or replace function penstock.end_sweep(p_name text, p_lowest_left bigint) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_position penstock.position;
    v_target bigint;
begin
    select * into v_position from penstock.position where name = p_name;
    v_target := pg_sequence_last_value(v_position.settled);
    v_target := least(v_target, coalesce(p_lowest_left - 1, v_target));
    if v_target > pg_sequence_last_value(v_position.floor) then
        perform setval(v_position.floor, v_target);
    end if;
end
$$;
comment on function penstock.end_sweep(text, bigint) is
    'Raise the floor to the settled mark, or to just below the lowest row that is still there.';
revoke all on function penstock.end_sweep(text, bigint) from public;

-- kernel/functions/farewell.sql
create or replace function penstock.farewell(p_id uuid) returns void
language sql security definer
set search_path = pg_catalog, pg_temp
as $$ delete from penstock.worker where id = p_id $$;
comment on function penstock.farewell(uuid) is 'A worker has stopped in good order.';
revoke all on function penstock.farewell(uuid) from public;
grant execute on function penstock.farewell(uuid)
    to penstock_outbox_executor, penstock_intake_executor, penstock_payments_executor,
       penstock_inbox_executor;

-- kernel/functions/fingerprint.sql
create or replace function penstock.fingerprint(p_code text, p_error text) returns text
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
    select left(encode(sha256(convert_to(coalesce(p_code, '') || '|' ||
        regexp_replace(coalesce(p_error, ''), '[0-9a-fA-F-]{8,}|[0-9]+|''[^'']*''|"[^"]*"', '#', 'g'),
        'UTF8')), 'hex'), 12)
$$;
comment on function penstock.fingerprint(text, text) is
    'A short stable hash of an error without its varying parts, so that like errors group.';
revoke all on function penstock.fingerprint(text, text) from public;
grant execute on function penstock.fingerprint(text, text)
    to penstock_operator, penstock_control, penstock_readonly, penstock_auditor;

-- kernel/functions/finish_job.sql
create or replace function penstock.finish_job(p_job text, p_token uuid, p_error text)
returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    -- The next run counts from the planned time; one run makes up for all that were missed.
    update penstock.schedule s
    set lease_token = null,
        lease_expires_at = null,
        last_finished_at = penstock.clock(),
        last_error = left(p_error, 2000),
        run_count = s.run_count + 1,
        next_run_at = make_interval(secs => s.every_s)
            + case when s.next_run_at + make_interval(secs => s.every_s) > penstock.clock()
                   then s.next_run_at else penstock.clock() end
    where s.job = p_job and s.lease_token = p_token;
    return found;
end
$$;
comment on function penstock.finish_job(text, uuid, text) is
    'End a run of a job; false if the lease was lost.';
revoke all on function penstock.finish_job(text, uuid, text) from public;
grant execute on function penstock.finish_job(text, uuid, text)
    to penstock_outbox_executor, penstock_intake_executor, penstock_payments_executor,
       penstock_inbox_executor, penstock_operator;

-- kernel/functions/heartbeat.sql
create or replace function penstock.heartbeat(
    p_id uuid, p_host text, p_pid integer, p_version text, p_queues text[]
) returns void
language sql security definer
set search_path = pg_catalog, pg_temp
as $$
    delete from penstock.worker where heartbeat_at < penstock.clock() - interval '1 day';
    insert into penstock.worker (id, host, pid, version, queues)
    values (p_id, p_host, p_pid, p_version, p_queues)
    on conflict (id) do update set heartbeat_at = penstock.clock(), queues = excluded.queues
$$;
comment on function penstock.heartbeat(uuid, text, integer, text, text[]) is
    'Tell that a worker lives; people read it, leases do not.';
revoke all on function penstock.heartbeat(uuid, text, integer, text, text[]) from public;
grant execute on function penstock.heartbeat(uuid, text, integer, text, text[])
    to penstock_outbox_executor, penstock_intake_executor, penstock_payments_executor,
       penstock_inbox_executor;

-- kernel/functions/install_views.sql
create or replace function penstock.install_views() returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    v_dead text;
    v_stats text;
    v_role name;
begin
    select string_agg(format('select * from %s', dead_view), ' union all ' order by queue),
           string_agg(format('select * from %s', stats_view), ' union all ' order by queue)
    into v_dead, v_stats
    from penstock.queue;
    execute 'create or replace view penstock.dead_letters as ' || coalesce(v_dead,
        'select null::text as queue, null::uuid as id, null::text as topic, null::text as state, '
        'null::text as error_code, null::text as fingerprint, null::text as error, '
        'null::integer as attempts, null::timestamptz as created_at, null::timestamptz as dead_at '
        'where false');
    execute 'create or replace view penstock.queue_stats as ' || coalesce(v_stats,
        'select null::text as queue, null::bigint as ready, null::bigint as scheduled, '
        'null::bigint as leased, null::bigint as expired, null::bigint as dead, '
        'null::bigint as held, null::double precision as oldest_age_s where false');
    comment on view penstock.dead_letters is 'Dead and held items of all queues.';
    comment on view penstock.queue_stats is 'Depth, age and trouble of all queues, from hot tables.';
    -- Roles may be absent where the operator chose to manage them elsewhere.
    for v_role in
        select rolname from pg_roles
        where rolname in ('penstock_operator', 'penstock_readonly', 'penstock_auditor',
                          'penstock_control')
    loop
        execute format('grant select on penstock.dead_letters, penstock.queue_stats to %I', v_role);
    end loop;
end
$$;
comment on function penstock.install_views() is
    'Rebuild the views over all registered queues; migrate calls it last.';
revoke all on function penstock.install_views() from public;

-- kernel/functions/is_paused.sql
create or replace function penstock.is_paused(p_target text) returns boolean
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    return exists (
        select from penstock.pause p
        where p.target = p_target and (p.until_at is null or p.until_at > penstock.clock()));
end
$$;
comment on function penstock.is_paused(text) is 'Whether a target is paused right now.';
revoke all on function penstock.is_paused(text) from public;
grant execute on function penstock.is_paused(text) to penstock_operator, penstock_readonly;

-- kernel/functions/keep_days.sql
create or replace function penstock.keep_days(p_tables text[], p_keep interval) returns integer
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    v_today date := (penstock.clock() at time zone 'UTC')::date;
    v_before date := least((v_today - p_keep)::date, v_today);
    v_parents oid[] := array(
        select format('public.%I', t.name)::regclass::oid from unnest(p_tables) as t (name));
    v_had oid[] := array(
        select i.inhrelid from pg_inherits i where i.inhparent = any (v_parents) order by 1);
    v_name text;
    v_most integer := 0;
begin
    foreach v_name in array p_tables loop
        perform penstock.make_days(v_name);
    end loop;
    for v_name in
        select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid
        where i.inhparent = any (v_parents)
          and c.relname ~ '_[0-9]{8}$'
          and to_date(right(c.relname, 8), 'YYYYMMDD') < v_today - p_keep
          and to_date(right(c.relname, 8), 'YYYYMMDD') < v_today
        order by c.relname
    loop
        execute format('drop table public.%I', v_name);
    end loop;
    if v_had <> array(
        select i.inhrelid from pg_inherits i where i.inhparent = any (v_parents) order by 1) then
        return 10000;
    end if;
    foreach v_name in array p_tables loop
        v_most := greatest(
            v_most, penstock.purge_default(v_name, v_before::timestamp at time zone 'UTC'));
    end loop;
    return v_most;
end
$$;
comment on function penstock.keep_days(text[], interval) is
    'Make daily partitions ahead and remove what is past retention; 10000 or more where it should be '
    'called again.';
revoke all on function penstock.keep_days(text[], interval) from public;

-- kernel/functions/late_result.sql
create or replace function penstock.late_result(
    p_queue text, p_item_id uuid, p_token uuid, p_epoch bigint, p_verdict text, p_code text
) returns void
language sql security definer
set search_path = pg_catalog, pg_temp
as $$
    insert into penstock.late_results (queue, item_id, lease_token, lease_epoch, verdict, code)
    values (p_queue, p_item_id, p_token, p_epoch, p_verdict, p_code)
$$;
comment on function penstock.late_result(text, uuid, uuid, bigint, text, text) is
    'Keep an outcome whose lease was lost.';
revoke all on function penstock.late_result(text, uuid, uuid, bigint, text, text) from public;

-- kernel/functions/make_days.sql
create or replace function penstock.make_days(p_table text) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    v_today date := (penstock.clock() at time zone 'UTC')::date;
    v_guard text := p_table || '_no_truncate';
    v_guarded boolean := exists (
        select from pg_trigger t
        where t.tgrelid = format('public.%I', p_table)::regclass and t.tgname = v_guard);
    v_day date;
    v_part text;
begin
    for v_day in select v_today + i from generate_series(0, 14) as i loop
        v_part := p_table || '_' || to_char(v_day, 'YYYYMMDD');
        continue when to_regclass('public.' || quote_ident(v_part)) is not null;
        begin
            execute format(
                'create table public.%I partition of public.%I for values from (%L) to (%L)',
                v_part, p_table, v_day::timestamp at time zone 'UTC',
                (v_day + 1)::timestamp at time zone 'UTC');
        exception when check_violation then
            continue;
        end;
        execute format('alter table public.%I enable row level security', v_part);
        execute format('comment on table public.%I is %L', v_part, 'One day of ' || p_table);
        continue when not v_guarded;
        execute format(
            'create trigger %I before truncate on public.%I '
            'for each statement execute function penstock.refuse_change()', v_guard, v_part);
        execute format('alter table public.%I enable always trigger %I', v_part, v_guard);
    end loop;
end
$$;
comment on function penstock.make_days(text) is 'Make the daily partitions of the next two weeks.';
revoke all on function penstock.make_days(text) from public;

-- kernel/functions/may_run.sql
create or replace function penstock.may_run(p_product text) returns boolean
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select p_product is null or r.executor is null
           or pg_has_role(c.caller, r.executor, 'member')
           or coalesce(pg_has_role(c.caller, r.operator, 'member'), false)
           or pg_has_role(c.caller, r.owner, 'member')
    from (select coalesce(nullif(current_setting('role'), 'none'), session_user)::name as caller) c,
         (select to_regrole(format('penstock_%s_executor', p_product))::oid as executor,
                 to_regrole('penstock_operator')::oid as operator,
                 (select t.relowner from pg_class t
                  where t.oid = 'penstock.schedule'::regclass) as owner) r
$$;
comment on function penstock.may_run(text) is
    'Whether the caller may run jobs of a product: its executor, an operator or the owner.';
revoke all on function penstock.may_run(text) from public;

-- kernel/functions/milliseconds.sql
create or replace function penstock.milliseconds(p_at timestamptz) returns bigint
language sql immutable parallel safe
as $$
    select floor(extract(epoch from p_at - timestamptz '1970-01-01 00:00:00+00') * 1000)::bigint
$$;
comment on function penstock.milliseconds(timestamptz) is 'Unix milliseconds, as sequences hold them.';
revoke all on function penstock.milliseconds(timestamptz) from public;

-- kernel/functions/net_due.sql
create or replace function penstock.net_due(p_name text) returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_net regclass;
    v_now_ms bigint := penstock.milliseconds(clock_timestamp());
begin
    select net_ms into v_net from penstock.position where name = p_name;
    if abs(v_now_ms - pg_sequence_last_value(v_net)) < 600000 then
        return false;
    end if;
    perform setval(v_net, v_now_ms);
    return true;
end
$$;
comment on function penstock.net_due(text) is
    'True once every ten minutes: the caller then looks from zero instead of the floors.';
revoke all on function penstock.net_due(text) from public;

-- kernel/functions/note_deaths.sql
create or replace function penstock.note_deaths(
    p_queue text, p_ids uuid[], p_topics text[], p_attempts integer[], p_codes text[]
) returns void
language sql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
set enable_incremental_sort = off
set jit = off
as $$
    -- More than are added, so that the bound holds; none is locked that stays. The order leaves one
    -- index that fits: by another the planner might read the notes of all queues.
    delete from penstock.deaths d where d.number = any (array(
        select o.number from penstock.deaths o where o.number = any (array(
            select h.number
            from (select f.number, f.died_at from penstock.deaths f
                  where (f.queue, f.number) >= (p_queue, '-9223372036854775808'::bigint)
                    and (f.queue, f.number) <= (p_queue, 9223372036854775807)
                  order by f.queue, f.number limit 1000 + coalesce(cardinality(p_ids), 0)) h
            where h.died_at < penstock.clock() - interval '1 day'
               or h.number < (
                   select l.number from penstock.deaths l
                   where (l.queue, l.number) >= (p_queue, '-9223372036854775808'::bigint)
                     and (l.queue, l.number) <= (p_queue, 9223372036854775807)
                   order by l.queue desc, l.number desc limit 1) - 100000))
        for update skip locked));
    insert into penstock.deaths (queue, item_id, topic, attempt, code)
    select p_queue, d.id, d.topic, d.attempt, coalesce(d.code, 'UNKNOWN')
    from unnest(p_ids, p_topics, p_attempts, p_codes) as d (id, topic, attempt, code)
$$;
comment on function penstock.note_deaths(text, uuid[], text[], integer[], text[]) is
    'Note items of a queue that have just died, for a worker to tell of.';
revoke all on function penstock.note_deaths(text, uuid[], text[], integer[], text[]) from public;

-- kernel/functions/pause_target.sql
create or replace function penstock.pause_target(
    p_target   text,
    p_reason   text,
    p_for      interval default null,
    p_operator text default null
) returns uuid
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_until timestamptz := penstock.clock() + p_for;
begin
    -- A pause that no claim reads would be a false comfort.
    if not exists (
        select from penstock.queue q
        where q.queue = p_target
           or (p_target like '%/_%' and split_part(p_target, '/', 1) = any (q.kinds))
    ) then
        raise exception using
            errcode = 'PN005',
            message = format('%L is not a target here', p_target),
            hint    = (select 'targets: ' || coalesce(string_agg(t.target, ', ' order by t.target),
                                                  'none, no queue is installed')
                       from (select q.queue as target from penstock.queue q
                             union all
                             select k.kind || '/NAME' from penstock.queue q, unnest(q.kinds) as k (kind)
                            ) t);
    end if;
    if p_target like 'tenant/%'
       and p_target !~* '^tenant/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' then
        raise exception using
            errcode = 'PN005',
            message = format('%L names no tenant', p_target),
            hint    = 'a tenant is named by its UUID, as in the tenant column: tenant/UUID';
    end if;
    insert into penstock.pause as p (target, reason, paused_by, until_at)
    values (p_target, p_reason, coalesce(p_operator, session_user), v_until)
    on conflict (target) do update
        set reason = excluded.reason, paused_by = excluded.paused_by,
            paused_at = penstock.clock(), until_at = excluded.until_at;
    return audit.record('pause', 'penstock.pause',
        jsonb_build_object('target', p_target, 'until_at', v_until), p_reason, p_operator);
end
$$;
comment on function penstock.pause_target(text, text, interval, text) is
    'Stop claims on a queue or a part of it, for a while or until resumed; audited.';
revoke all on function penstock.pause_target(text, text, interval, text) from public;
grant execute on function penstock.pause_target(text, text, interval, text) to penstock_operator;

-- kernel/functions/paused.sql
create or replace function penstock.paused(p_kind text) returns text[]
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    return array(
        select substr(p.target, length(p_kind) + 2) from penstock.pause p
        where starts_with(p.target, p_kind || '/')
          and (p.until_at is null or p.until_at > penstock.clock()));
end
$$;
comment on function penstock.paused(text) is 'Names paused under a kind: paused(''topic'').';
revoke all on function penstock.paused(text) from public;
grant execute on function penstock.paused(text) to penstock_operator, penstock_readonly;

-- kernel/functions/policy.sql
create or replace function penstock.policy(p_queue text)
returns table (
    lease_s integer, max_attempts integer, backoff_base_s numeric, backoff_cap_s numeric,
    poll_ms integer, notify boolean
)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
    select c.lease_s, c.max_attempts, c.backoff_base_s, c.backoff_cap_s, c.poll_ms, c.notify
    from penstock.queue_config c
    where c.queue = p_queue
$$;
comment on function penstock.policy(text) is 'The numbers a queue runs by.';
revoke all on function penstock.policy(text) from public;
grant execute on function penstock.policy(text)
    to penstock_outbox_executor, penstock_intake_executor, penstock_payments_executor,
       penstock_inbox_executor, penstock_operator, penstock_readonly;

-- kernel/functions/purge_default.sql
create or replace function penstock.purge_default(p_table text, p_before timestamptz) returns integer
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
    v_default text := p_table || '_default';
    v_guard text := p_table || '_append_only';
    v_time text := (
        select a.attname from pg_partitioned_table p
        join pg_attribute a on a.attrelid = p.partrelid and a.attnum = p.partattrs[0]
        where p.partrelid = format('public.%I', p_table)::regclass);
    v_guarded boolean := exists (
        select from pg_trigger t
        where t.tgrelid = format('public.%I', v_default)::regclass and t.tgname = v_guard);
    v_old boolean;
    v_count integer;
begin
    execute format('select exists (select from public.%1$I where %2$I < $1)', v_default, v_time)
    into v_old using p_before;
    if not v_old then
        return 0;
    end if;
    if v_guarded then
        execute format('alter table public.%I disable trigger %I', v_default, v_guard);
    end if;
    execute format(
        'delete from public.%1$I where ctid = any (array(select ctid from public.%1$I '
        'where %2$I < $1 order by %2$I limit 10000 for update skip locked))', v_default, v_time)
    using p_before;
    get diagnostics v_count = row_count;
    if v_guarded then
        execute format('alter table public.%I enable always trigger %I', v_default, v_guard);
    end if;
    return v_count;
end
$$;
comment on function penstock.purge_default(text, timestamptz) is
    'Delete rows of a default partition from before a day, at most 10000; returns how many.';
revoke all on function penstock.purge_default(text, timestamptz) from public;

-- kernel/functions/put_job.sql
create or replace function penstock.put_job(
    p_job text, p_every_s integer, p_product text default null
) returns void
language sql security definer
set search_path = pg_catalog, pg_temp
as $$
    insert into penstock.schedule (job, every_s, product)
    select p_job, p_every_s, coalesce(p_product, (
        select w.product from (select split_part(p_job, '_', 1) as product) w
        where w.product in ('outbox', 'inbox', 'intake', 'payments')))
    on conflict (job) do nothing
$$;
comment on function penstock.put_job(text, integer, text) is
    'Schedule a job if it is not scheduled yet; an operator''s own interval is kept.';
revoke all on function penstock.put_job(text, integer, text) from public;

-- kernel/functions/put_queue_config.sql
create or replace function penstock.put_queue_config(
    p_queue text, p_values jsonb, p_reason text, p_operator text default null
) returns uuid
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_before jsonb;
    v_row penstock.queue_config;
begin
    insert into penstock.queue_config (queue) values (p_queue) on conflict (queue) do nothing;
    select * into v_row from penstock.queue_config c where c.queue = p_queue for update;
    v_before := to_jsonb(v_row);
    v_row := jsonb_populate_record(v_row, p_values - 'queue');
    update penstock.queue_config c
    set lease_s = v_row.lease_s, max_attempts = v_row.max_attempts,
        backoff_base_s = v_row.backoff_base_s, backoff_cap_s = v_row.backoff_cap_s,
        poll_ms = v_row.poll_ms, notify = v_row.notify, retention = v_row.retention,
        fairness = v_row.fairness
    where c.queue = p_queue;
    return audit.record('apply', 'penstock.queue_config',
        jsonb_build_object('queue', p_queue, 'before', v_before, 'after', to_jsonb(v_row)),
        p_reason, p_operator);
end
$$;
comment on function penstock.put_queue_config(text, jsonb, text, text) is
    'Set policy of one queue; audited with the row before and after.';
revoke all on function penstock.put_queue_config(text, jsonb, text, text) from public;
grant execute on function penstock.put_queue_config(text, jsonb, text, text) to penstock_control;

-- kernel/functions/put_schedule.sql
create or replace function penstock.put_schedule(
    p_job text, p_values jsonb, p_reason text, p_operator text default null
) returns uuid
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_before jsonb;
    v_row penstock.schedule;
begin
    select * into v_row from penstock.schedule s where s.job = p_job for update;
    if not found then
        raise exception using
            errcode = 'PN011',
            message = format('there is no job %L', p_job),
            hint    = 'jobs come from installed products; `penstock export` lists them';
    end if;
    v_before := jsonb_build_object('every_s', v_row.every_s, 'enabled', v_row.enabled);
    v_row := jsonb_populate_record(v_row, p_values);
    update penstock.schedule s
    set every_s = v_row.every_s, enabled = v_row.enabled,
        -- A shorter interval counts from now, not from a time planned under the longer one.
        next_run_at = least(s.next_run_at,
                            penstock.clock() + make_interval(secs => v_row.every_s))
    where s.job = p_job;
    return audit.record('apply', 'penstock.schedule',
        jsonb_build_object('job', p_job, 'before', v_before, 'after', p_values),
        p_reason, p_operator);
end
$$;
comment on function penstock.put_schedule(text, jsonb, text, text) is
    'Set interval and switch of one job; audited.';
revoke all on function penstock.put_schedule(text, jsonb, text, text) from public;
grant execute on function penstock.put_schedule(text, jsonb, text, text) to penstock_control;

-- kernel/functions/raise_time_floor.sql
create or replace function penstock.raise_time_floor(
    p_sequence regclass, p_lowest timestamptz, p_lag interval
) returns void
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
    select setval(p_sequence, target.ms)
    from (select penstock.milliseconds(
              least(p_lowest - interval '1 millisecond', penstock.clock() - p_lag)) as ms) target
    where current_setting('transaction_isolation') = 'read committed'  -- see raise_watermark
      and (target.ms >= pg_sequence_last_value(p_sequence) + 1000
           or pg_sequence_last_value(p_sequence) > penstock.milliseconds(penstock.clock()))
$$;
comment on function penstock.raise_time_floor(regclass, timestamptz, interval) is
    'Move a time floor up to just below the lowest time still waiting; down only with the clock.';
revoke all on function penstock.raise_time_floor(regclass, timestamptz, interval) from public;

-- kernel/functions/raise_watermark.sql
create or replace function penstock.raise_watermark(p_name text, p_lowest bigint) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_position record;
    v_target bigint;
begin
    select watermark, next_pos into v_position from penstock.position where name = p_name;
    -- With nothing ready, every position handed out so far is claimed, aborted or not yet
    -- committed; the sweep brings the last kind back.
    v_target := coalesce(p_lowest - 1, pg_sequence_last_value(v_position.next_pos));
    -- An older snapshot does not show what was committed since. Only those may pass it who also sweep.
    if v_target > pg_sequence_last_value(v_position.watermark)
       and current_setting('transaction_isolation') = 'read committed' then
        perform setval(v_position.watermark, v_target);
    end if;
end
$$;
comment on function penstock.raise_watermark(text, bigint) is
    'Move the watermark up to just below the lowest ready position seen; never down.';
revoke all on function penstock.raise_watermark(text, bigint) from public;

-- kernel/functions/record.sql
create or replace function audit.record(
    p_operation  text,
    p_table_name text,
    p_row_data   jsonb,
    p_reason     text,
    p_operator   text default null
) returns uuid
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_id uuid := penstock.uuidv7();
begin
    if coalesce(trim(p_reason), '') = '' then
        raise exception using errcode = 'PN205', message = 'this action needs a reason';
    end if;
    insert into audit.audit_logs (id, operation, table_name, row_data, reason, operator)
    values (v_id, p_operation, p_table_name, coalesce(p_row_data, '{}'), p_reason, p_operator);
    return v_id;
end
$$;
comment on function audit.record(text, text, jsonb, text, text) is
    'Write one audit row in the caller''s transaction and return its id.';
revoke all on function audit.record(text, text, jsonb, text, text) from public;

-- kernel/functions/refuse_change.sql
create or replace function penstock.refuse_change() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    raise exception using
        errcode = 'PN106',
        message = format('%s.%s is append-only', tg_table_schema, tg_table_name),
        hint    = 'write a new row; corrections are new facts';
end
$$;
comment on function penstock.refuse_change() is 'Trigger: rows are never changed or removed.';
revoke all on function penstock.refuse_change() from public;

-- kernel/functions/replay.sql
create or replace function penstock.replay(
    p_queue text, p_ids uuid[], p_reason text, p_operator text default null
) returns table (id uuid, audit_id uuid)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    v_verb text;
begin
    select q.replay into v_verb from penstock.queue q where q.queue = p_queue;
    if v_verb is null then
        raise exception using errcode = 'PN011', message = format('there is no queue %L', p_queue);
    end if;
    return query execute format(
        'select r.id, r.audit_id from %I.%I(p_ids => $1, p_reason => $2, p_operator => $3) r',
        split_part(v_verb, '.', 1), split_part(v_verb, '.', 2))
    using p_ids, p_reason, p_operator;
end
$$;
comment on function penstock.replay(text, uuid[], text, text) is
    'Replay dead or held items of any queue; returns those that were, each with its audit row.';
revoke all on function penstock.replay(text, uuid[], text, text) from public;
grant execute on function penstock.replay(text, uuid[], text, text) to penstock_operator;

-- kernel/functions/resume_target.sql
create or replace function penstock.resume_target(
    p_target   text,
    p_reason   text,
    p_operator text default null
) returns uuid
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    delete from penstock.pause where target = p_target;
    if not found then
        raise exception using errcode = 'PN011', message = format('%s is not paused', p_target);
    end if;
    return audit.record('resume', 'penstock.pause',
        jsonb_build_object('target', p_target), p_reason, p_operator);
end
$$;
comment on function penstock.resume_target(text, text, text) is 'Lift a pause; audited.';
revoke all on function penstock.resume_target(text, text, text) from public;
grant execute on function penstock.resume_target(text, text, text) to penstock_operator;

-- kernel/functions/story.sql
create or replace function penstock.story(
    p_id       uuid,
    p_payload  boolean default false,
    p_reason   text default null,
    p_operator text default null
) returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_queue record;
    v_story jsonb;
begin
    if p_payload and exists (select from pg_roles where rolname = 'penstock_operator')
       and not pg_has_role(session_user, 'penstock_operator', 'member') then
        raise exception using errcode = '42501', message = 'payloads are for penstock_operator';
    end if;
    for v_queue in select q.queue, q.story from penstock.queue q order by q.queue loop
        execute format('select %I.%I($1, $2)',
                       split_part(v_queue.story, '.', 1), split_part(v_queue.story, '.', 2))
        into v_story
        using p_id, p_payload;
        exit when v_story is not null;
    end loop;
    if v_story is null then
        raise exception using errcode = 'PN011', message = format('there is no item %s', p_id);
    end if;
    if p_payload then
        perform audit.record('read_payload', v_queue.queue, jsonb_build_object('id', p_id),
                             p_reason, p_operator);
    end if;
    return v_story;
end
$$;
comment on function penstock.story(uuid, boolean, text, text) is
    'Everything known about an item of any queue; reading its payload is audited.';
revoke all on function penstock.story(uuid, boolean, text, text) from public;
grant execute on function penstock.story(uuid, boolean, text, text)
    to penstock_operator, penstock_auditor;

-- kernel/functions/take_deaths.sql
create or replace function penstock.take_deaths(p_queue text)
returns table (item_id uuid, topic text, attempt integer, code text)
language sql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_incremental_sort = off
set jit = off
as $$
    with taken as (
        delete from penstock.deaths d where d.number = any (array(
            select o.number from penstock.deaths o
            where (o.queue, o.number) >= (p_queue, '-9223372036854775808'::bigint)
              and (o.queue, o.number) <= (p_queue, 9223372036854775807)
              and penstock.may_run(p_queue)
            order by o.queue, o.number limit 1000 for update skip locked))
        returning d.number, d.item_id, d.topic, d.attempt, d.code
    )
    select t.item_id, t.topic, t.attempt, t.code from taken t order by t.number
$$;
comment on function penstock.take_deaths(text) is
    'Take the deaths of a queue that nobody has told of yet, a thousand at most.';
revoke all on function penstock.take_deaths(text) from public;
grant execute on function penstock.take_deaths(text)
    to penstock_outbox_executor, penstock_payments_executor, penstock_inbox_executor;

-- kernel/functions/time_floor.sql
create or replace function penstock.time_floor(p_sequence regclass) returns timestamptz
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
    -- A floor above the clock means that the clock was set back: then look from the beginning.
    select case when floor.at <= penstock.clock() then floor.at else '-infinity' end
    from (select to_timestamp(pg_sequence_last_value(p_sequence) / 1000.0) as at) floor
$$;
comment on function penstock.time_floor(regclass) is 'Below this time nothing is expected to wait.';
revoke all on function penstock.time_floor(regclass) from public;

-- kernel/functions/uuidv7.sql
create or replace function penstock.uuidv7() returns uuid
language sql volatile parallel safe
as $$
    select encode(set_bit(set_bit(overlay(
        uuid_send(gen_random_uuid())
        placing substring(int8send(floor(extract(epoch from clock_timestamp()) * 1000)::bigint) from 3)
        from 1 for 6), 52, 1), 53, 1), 'hex')::uuid
$$;
comment on function penstock.uuidv7() is 'A time-ordered UUID (RFC 9562, version 7).';
revoke all on function penstock.uuidv7() from public;
grant execute on function penstock.uuidv7() to public;

-- kernel/tables.sql
create table penstock.migration (
    product    text        not null,
    version    integer     not null,
    name       text        not null,
    checksum   text        not null,
    applied_at timestamptz not null default penstock.clock(),
    primary key (product, version)
);
comment on table penstock.migration is 'Applied schema versions, one line per product.';
create table penstock.catalog (
    object     text primary key,
    kind       text not null,
    digest     text not null,
    product    text not null,
    definition text not null
);
comment on table penstock.catalog is 'Digest of every installed object, for drift detection.';
create table penstock.queue (
    queue      text primary key,
    product    text not null,
    dead_view  regclass not null,
    stats_view regclass not null,
    replay     text not null,
    discard    text not null,
    story      text not null,
    kinds      text[] not null default '{}'
);
comment on table penstock.queue is
    'Registered queues; replay, discard and story name functions (ids, operator, reason) / (id).';
comment on column penstock.queue.kinds is 'Parts of the queue that can be paused: topic, pool, …';
create table penstock.queue_config (
    queue          text    primary key,
    lease_s        integer not null default 30  check (lease_s between 1 and 3600),
    max_attempts   integer not null default 10  check (max_attempts between 1 and 1000),
    backoff_base_s numeric not null default 1   check (backoff_base_s > 0),
    backoff_cap_s  numeric not null default 300 check (backoff_cap_s >= backoff_base_s),
    poll_ms        integer not null default 40  check (poll_ms between 10 and 60000),
    notify         boolean not null default false,
    retention      interval not null default interval '7 days'
                   check (retention >= interval '1 day'),
    fairness       text    not null default 'none' check (fairness in ('none', 'round_robin'))
);
comment on table penstock.queue_config is 'Policy per queue: lease, attempts, back-off, polling.';
create table penstock.worker (
    id           uuid        primary key,
    host         text        not null,
    pid          integer     not null,
    version      text        not null,
    queues       text[]      not null,
    started_at   timestamptz not null default penstock.clock(),
    heartbeat_at timestamptz not null default penstock.clock()
);
comment on table penstock.worker is 'Workers seen lately. For people only: no lease depends on it.';
create table penstock.late_results (
    id          bigint generated always as identity primary key,
    queue       text        not null,
    item_id     uuid        not null,
    lease_token uuid        not null,
    lease_epoch bigint,
    verdict     text        not null,
    code        text,
    recorded_at timestamptz not null default penstock.clock()
);
create index late_results_item on penstock.late_results (item_id);
comment on table penstock.late_results is 'Outcomes that arrived after the lease was lost.';
create table penstock.deaths (
    number  bigint      generated always as identity primary key,
    queue   text        not null,
    item_id uuid        not null,
    topic   text        not null,
    attempt integer     not null,
    code    text        not null,
    died_at timestamptz not null default penstock.clock()
);
create index deaths_queue on penstock.deaths (queue, number);
comment on table penstock.deaths is 'Items that died without their worker, not yet told by one.';
create table penstock.pause (
    target    text        primary key check (target ~ '^[a-z_]+(/.+)?$'),
    reason    text        not null,
    paused_by text        not null,
    paused_at timestamptz not null default penstock.clock(),
    until_at  timestamptz
);
comment on table penstock.pause is 'What claims must leave alone, until when and why.';
create table penstock.schedule (
    job              text        primary key,
    every_s          integer     not null check (every_s between 1 and 31536000),
    enabled          boolean     not null default true,
    next_run_at      timestamptz not null default penstock.clock(),
    lease_token      uuid,
    lease_expires_at timestamptz,
    last_started_at  timestamptz,
    last_finished_at timestamptz,
    last_error       text,
    run_count        bigint      not null default 0,
    product          text,
    check ((lease_token is null) = (lease_expires_at is null))
);
comment on table penstock.schedule is 'Jobs that some worker runs once each time they are due.';
comment on column penstock.schedule.product is 'Whose executors run it; null means any.';
create table penstock.position (
    name       text     primary key,
    next_pos   regclass not null,
    watermark  regclass not null,
    floor      regclass not null,
    settled    regclass not null,
    mark_pos   regclass not null,
    mark_xid   regclass not null,
    mark_at_ms regclass not null,
    swept_ms   regclass not null,
    net_ms     regclass not null,
    due_ms     regclass not null,
    lease_ms   regclass not null,
    sweep_ms   integer  not null default 500 check (sweep_ms between 50 and 60000)
);
comment on table penstock.position is 'Watermark and sweep state of each ready index.';
create table audit.audit_logs (
    id         uuid        primary key default penstock.uuidv7(),
    at         timestamptz not null default penstock.clock(),
    actor      text        not null default session_user,
    role       text        not null default current_setting('role', true),
    operation  text        not null,
    table_name text        not null,
    row_data   jsonb       not null default '{}',
    changed_by uuid,
    clinic_id  uuid,
    reason     text        not null,
    operator   text
);
create index audit_logs_at on audit.audit_logs (at);
comment on table audit.audit_logs is 'Append-only: who did what to which rows, and why.';
comment on column audit.audit_logs.actor is 'The login that acted, as the server knows it.';
comment on column audit.audit_logs.operator is 'The person, as the calling tool stated it.';
alter table penstock.migration    enable row level security;
alter table penstock.catalog      enable row level security;
alter table penstock.queue        enable row level security;
alter table penstock.queue_config enable row level security;
alter table penstock.worker       enable row level security;
alter table penstock.late_results enable row level security;
alter table penstock.deaths       enable row level security;
alter table penstock.pause        enable row level security;
alter table penstock.schedule     enable row level security;
alter table penstock.position     enable row level security;
alter table audit.audit_logs      enable row level security;

-- kernel/triggers.sql
create or replace trigger audit_logs_append_only
    before update or delete on audit.audit_logs
    for each row execute function penstock.refuse_change();
alter table audit.audit_logs enable always trigger audit_logs_append_only;
create or replace trigger audit_logs_no_truncate
    before truncate on audit.audit_logs
    for each statement execute function penstock.refuse_change();
alter table audit.audit_logs enable always trigger audit_logs_no_truncate;
create or replace trigger late_results_append_only
    before update or delete on penstock.late_results
    for each row execute function penstock.refuse_change();
alter table penstock.late_results enable always trigger late_results_append_only;
create or replace trigger late_results_no_truncate
    before truncate on penstock.late_results
    for each statement execute function penstock.refuse_change();
alter table penstock.late_results enable always trigger late_results_no_truncate;

reset role;

-- kernel/grants.sql
grant usage on schema penstock to
    penstock_outbox_ingest, penstock_outbox_executor, penstock_intake_ingest,
    penstock_intake_executor, penstock_payments_ingest, penstock_payments_executor,
    penstock_inbox_ingest, penstock_inbox_executor, penstock_ledger_writer,
    penstock_operator, penstock_control, penstock_readonly, penstock_auditor;
grant usage on schema audit to penstock_operator, penstock_auditor;

set local role penstock_owner;

-- kernel/grants.sql
grant select on penstock.migration to
    penstock_outbox_ingest, penstock_outbox_executor, penstock_intake_ingest,
    penstock_intake_executor, penstock_payments_ingest, penstock_payments_executor,
    penstock_inbox_ingest, penstock_inbox_executor, penstock_ledger_writer,
    penstock_operator, penstock_control, penstock_readonly, penstock_auditor;
grant select on penstock.catalog to penstock_operator, penstock_auditor;
grant select on penstock.queue, penstock.queue_config, penstock.worker, penstock.pause,
    penstock.schedule, penstock.late_results, penstock.deaths, penstock.position
    to penstock_operator, penstock_control, penstock_readonly, penstock_auditor;
grant select on audit.audit_logs to penstock_operator, penstock_auditor;
do $$
declare
    v_table text;
begin
    foreach v_table in array array[
        'penstock.migration', 'penstock.catalog', 'penstock.queue', 'penstock.queue_config',
        'penstock.worker', 'penstock.late_results', 'penstock.pause', 'penstock.schedule',
        'penstock.deaths', 'penstock.position', 'audit.audit_logs'
    ] loop
        execute format('drop policy if exists readers on %s', v_table);
        execute format('create policy readers on %s for select using (true)', v_table);
    end loop;
end
$$;

-- kernel: function bodies
set local penstock.argument = 'audit.record penstock.alert penstock.begin_sweep penstock.claim_jobs penstock.clock penstock.create_position penstock.discard penstock.end_sweep penstock.farewell penstock.fingerprint penstock.finish_job penstock.heartbeat penstock.install_views penstock.is_paused penstock.keep_days penstock.late_result penstock.make_days penstock.may_run penstock.milliseconds penstock.net_due penstock.note_deaths penstock.pause_target penstock.paused penstock.policy penstock.purge_default penstock.put_job penstock.put_queue_config penstock.put_schedule penstock.raise_time_floor penstock.raise_watermark penstock.refuse_change penstock.replay penstock.resume_target penstock.story penstock.take_deaths penstock.time_floor penstock.uuidv7';
-- Functions are loaded unchecked, because tables come after them; their bodies are checked here.
do $check$
declare
    v_function record;
begin
    perform set_config('check_function_bodies', 'on', true);
    for v_function in
        select f.oid, l.lanname
        from pg_proc f
        join pg_namespace n on n.oid = f.pronamespace
        join pg_language l on l.oid = f.prolang
        where n.nspname || '.' || f.proname
              = any (string_to_array(current_setting('penstock.argument'), ' '))
    loop
        if v_function.lanname = 'plpgsql' then
            perform plpgsql_validator(v_function.oid);
        elsif v_function.lanname = 'sql' then
            perform fmgr_sql_validator(v_function.oid);
        end if;
    end loop;
    perform set_config('check_function_bodies', 'off', true);
end
$check$;

-- kernel: views over all queues
-- Products are installed one by one; the views over all of them are rebuilt after each.
do $views$
begin
    if to_regprocedure('penstock.install_views()') is not null then
        perform penstock.install_views();
    end if;
end
$views$;

reset role;

-- kernel: record of version 1
insert into penstock.migration (product, version, name, checksum)
values ('kernel', 1, 'definitions', 'fdf59ffbe47327ce1056d1be16b7294c90f04e46c3efb7e3d1c70eb7c57afd5d')
on conflict (product, version) do update set checksum = excluded.checksum;

-- kernel: record of its files
insert into penstock.catalog (object, kind, product, definition, digest)
values ('file kernel/schema', 'file', 'kernel', '1', 'bc0823237774b536c145d3f96e7156329bd50af590afd73c51f7942dac672ae3')
on conflict (object) do update
set definition = excluded.definition, digest = excluded.digest;

-- kernel: record of its files
insert into penstock.catalog (object, kind, product, definition, digest)
values ('file kernel/types', 'file', 'kernel', '1', 'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855')
on conflict (object) do update
set definition = excluded.definition, digest = excluded.digest;

-- kernel: record of its files
insert into penstock.catalog (object, kind, product, definition, digest)
values ('file kernel/functions', 'file', 'kernel', '1', 'c237d6a95147d5c34b7148394bce4514983588ccd2b360a6f4f5260637e35ef0')
on conflict (object) do update
set definition = excluded.definition, digest = excluded.digest;

-- kernel: record of its files
insert into penstock.catalog (object, kind, product, definition, digest)
values ('file kernel/tables', 'file', 'kernel', '1', 'c88df09720c835262210e68eed45043fecbe338c336f33f10a438ec072aa031e')
on conflict (object) do update
set definition = excluded.definition, digest = excluded.digest;

-- kernel: record of its files
insert into penstock.catalog (object, kind, product, definition, digest)
values ('file kernel/triggers', 'file', 'kernel', '1', '4991250ebeaa746b20b459286849fc40930ada1f6968e325019405a1939f1879')
on conflict (object) do update
set definition = excluded.definition, digest = excluded.digest;

-- kernel: record of its files
insert into penstock.catalog (object, kind, product, definition, digest)
values ('file kernel/views', 'file', 'kernel', '1', 'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855')
on conflict (object) do update
set definition = excluded.definition, digest = excluded.digest;

-- kernel: record of its files
insert into penstock.catalog (object, kind, product, definition, digest)
values ('file kernel/grants', 'file', 'kernel', '1', '99115372c60885fdf2455481c0a12d9dc38406de43f012685a0591312e5362bc')
on conflict (object) do update
set definition = excluded.definition, digest = excluded.digest;

-- intake: only where it is not installed
do $guard$
begin
    if to_regclass('penstock.migration') is null then
        return;
    end if;
    if exists (select from penstock.migration where product = 'intake') then
        raise exception using errcode = 'PN101',
            message = 'intake' || ' is already installed here',
            hint = 'print the upgrade instead: penstock schema print --only intake --from VERSION';
    end if;
end
$guard$;

-- intake: pgmq
set local penstock.argument = 'penstock_owner';
-- Intake's queues are pgmq queues. Where the server offers the extension it is used; elsewhere this
-- makes room for the SQL of the official package. The argument is the owner of our objects, or
-- empty where roles are managed by hand.
do $pgmq$
declare
    v_owner text := current_setting('penstock.argument');
begin
    if to_regnamespace('pgmq') is null then
        if exists (select from pg_available_extensions where name = 'pgmq') then
            create extension pgmq;
        elsif v_owner = '' then
            create schema pgmq;
        else
            execute format('create schema pgmq authorization %I', v_owner);
        end if;
    end if;
    if v_owner <> '' and v_owner <> (select pg_get_userbyid(nspowner)
                                     from pg_namespace where nspname = 'pgmq') then
        execute format('grant usage, create on schema pgmq to %I', v_owner);
        execute format('grant select, insert, update, delete on all tables in schema pgmq to %I',
                       v_owner);
        execute format('grant execute on all functions in schema pgmq to %I', v_owner);
    end if;
end
$pgmq$;

set local role penstock_owner;

-- intake: pgmq
do $pgmq$
begin
    if to_regprocedure('pgmq.create(text)') is null then
        raise exception using errcode = 'PN004',
            message = 'intake needs pgmq: this server has no such extension, and the Python package '
                      'that carries its SQL is not installed',
            hint = 'pip install ''penstock[intake]'', or let an administrator install pgmq.';
    end if;
end
$pgmq$;

reset role;

-- intake: schemas
create schema if not exists "penstock_intake" authorization penstock_owner;

-- intake: schemas
set local penstock.argument = 'penstock_intake';
-- Lets the owner of our objects create in a schema that is not its own, such as public.
do $share$
declare
    v_schema name := current_setting('penstock.argument');
begin
    if (select pg_get_userbyid(nspowner) <> 'penstock_owner'
        from pg_namespace where nspname = v_schema)
       and not (has_schema_privilege('penstock_owner', v_schema, 'create')
                and has_schema_privilege('penstock_owner', v_schema, 'usage')) then
        execute format('grant usage, create on schema %I to penstock_owner', v_schema);
    end if;
end
$share$;

-- intake: schemas
set local penstock.argument = 'public';
-- Lets the owner of our objects create in a schema that is not its own, such as public.
do $share$
declare
    v_schema name := current_setting('penstock.argument');
begin
    if (select pg_get_userbyid(nspowner) <> 'penstock_owner'
        from pg_namespace where nspname = v_schema)
       and not (has_schema_privilege('penstock_owner', v_schema, 'create')
                and has_schema_privilege('penstock_owner', v_schema, 'usage')) then
        execute format('grant usage, create on schema %I to penstock_owner', v_schema);
    end if;
end
$share$;

set local role penstock_owner;

-- intake: default rights
alter default privileges revoke execute on functions from public;

reset role;

-- intake/schema.sql
create schema if not exists "penstock_intake" authorization penstock_owner;
comment on schema penstock_intake is 'Internals of the intake engine: marks, retired slots, verbs.';

set local role penstock_owner;

-- intake/schema.sql
select penstock.create_position('intake');

-- intake/types.sql
create type public.slot_status as enum ('AVAILABLE', 'RESERVED', 'CONSUMED');
comment on type public.slot_status is 'Life of a slot: on offer, held by a buyer, sold.';

-- intake/tables.sql
create sequence penstock_intake.slot_ord;
create table public.inventory_slots (
    id                uuid               primary key default gen_random_uuid(),
    pool_id           text collate "C"   not null check (length(pool_id) between 1 and 200),
    status            public.slot_status not null default 'AVAILABLE',
    locked_by         text collate "C"   check (length(locked_by) between 1 and 200),
    locked_at         timestamptz,
    ord               bigint             not null,
    reservation_id    uuid,
    request_id        text collate "C"   check (length(request_id) between 1 and 200),
    user_nth          bigint,
    hold_expires_at   timestamptz,
    validated_at      timestamptz,
    commit_started_at timestamptz,
    sent_at           timestamptz,
    consumed_at       timestamptz,
    headers           jsonb              check (jsonb_typeof(headers) = 'object'),
    constraint inventory_slots_reserved_whole check (
        (status = 'AVAILABLE') = (reservation_id is null)
        and (status = 'AVAILABLE') = (locked_by is null)
        and (status <> 'AVAILABLE' or user_nth is null)),
    -- A resource for which a commit was ever started is never offered again.
    constraint inventory_slots_never_reoffered check (
        status <> 'AVAILABLE' or commit_started_at is null)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
create index idx_available_slots on public.inventory_slots (pool_id, status)
    where status = 'AVAILABLE';
create index inventory_slots_free on public.inventory_slots (pool_id, ord)
    where status = 'AVAILABLE';
create unique index inventory_slots_user on public.inventory_slots (pool_id, locked_by, user_nth)
    where user_nth is not null;
create unique index inventory_slots_request
    on public.inventory_slots (pool_id, locked_by, request_id) where request_id is not null;
create index inventory_slots_reservation on public.inventory_slots (reservation_id)
    where reservation_id is not null;
create index inventory_slots_locked_at on public.inventory_slots (locked_at)
    where status = 'RESERVED';
create index inventory_slots_hold on public.inventory_slots (hold_expires_at)
    where status = 'RESERVED' and hold_expires_at is not null;
comment on table public.inventory_slots is 'The things on sale, one row each.';
comment on column public.inventory_slots.ord is 'Place in the line of free slots.';
comment on column public.inventory_slots.user_nth is 'Which of the user''s slots it is.';
comment on column public.inventory_slots.commit_started_at is
    'Written before the first call to the ledger: from then on only the ledger can undo it.';
comment on column public.inventory_slots.sent_at is
    'Written before the first call to a commit webhook: from then on a refusal proves nothing.';
create table public.engine_config (
    pool_id                text    primary key check (length(pool_id) between 1 and 200),
    batch_size             int     not null default 100 check (batch_size between 1 and 1000),
    visibility_timeout_sec int     not null default 45
                                   check (visibility_timeout_sec between 1 and 3600),
    max_retries            int     not null default 10 check (max_retries between 0 and 1000),
    is_active              boolean not null default true,
    validation_webhook_url text,
    commit_rpc_name        text    not null default 'finalize_transaction',
    commit_webhook_url     text
);
comment on table public.engine_config is 'How each pool is processed.';
create table public.engine_metrics (
    id              bigint      generated always as identity primary key,
    captured_at     timestamptz not null default now(),
    pool_id         text        not null,
    available_slots int         not null,
    reserved_slots  int         not null,
    consumed_slots  int         not null,
    queue_depth     int         not null,
    dlq_depth       int         not null default 0
);
create index idx_metrics_pool_ts on public.engine_metrics (pool_id, captured_at desc);
create index engine_metrics_captured_at on public.engine_metrics (captured_at);
comment on table public.engine_metrics is 'Counts per active pool, taken every minute.';
create table public.intake_pools (
    pool_id      text        primary key check (length(pool_id) between 1 and 200),
    opens_at     timestamptz,
    closes_at    timestamptz,
    max_per_user int         check (max_per_user between 1 and 1000),
    hold_s       int         check (hold_s between 1 and 2592000),
    updated_at   timestamptz not null default penstock.clock(),
    constraint intake_pools_in_order check (closes_at > opens_at)
);
comment on table public.intake_pools is 'Sale policy: schedule, limit per user, hold time.';
create table penstock_intake.pool_mark (
    pool_id   text     primary key,
    watermark regclass not null
);
comment on table penstock_intake.pool_mark is 'Below the watermark no slot of the pool is free.';
create table penstock_intake.pool_stock (
    pool_id text   primary key,
    stocked bigint not null
);
comment on table penstock_intake.pool_stock is 'How many slots a pool was given; prove compares.';
create table penstock_intake.retired_slots (
    id                uuid        primary key,
    pool_id           text        not null,
    replaced_by       uuid        not null,
    locked_by         text        not null,
    reservation_id    uuid        not null,
    request_id        text,
    locked_at         timestamptz,
    commit_started_at timestamptz not null,
    retired_at        timestamptz not null default penstock.clock(),
    reason            text        not null
);
create index retired_slots_reservation on penstock_intake.retired_slots (reservation_id);
comment on table penstock_intake.retired_slots is
    'Slots whose commit had started when they were released; a new id took their place.';
create table penstock_intake.returned (
    msg_id bigint primary key
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
comment on table penstock_intake.returned is 'Ready messages that the watermark has passed.';
select pgmq.create('intake_queue');
select pgmq.create('intake_dlq');
alter table pgmq.q_intake_queue set (autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_cost_delay = 0);
create index intake_queue_reread on pgmq.q_intake_queue (vt) where read_ct > 0;
create index intake_dlq_resource on pgmq.q_intake_dlq ((message ->> 'resource_id'));
create index intake_dlq_reservation on pgmq.q_intake_dlq ((message ->> 'reservation_id'));
create index intake_dlq_pool on pgmq.q_intake_dlq ((message ->> 'pool_id'), msg_id);
alter table public.inventory_slots        enable row level security;
alter table public.engine_config          enable row level security;
alter table public.engine_metrics         enable row level security;
alter table public.intake_pools           enable row level security;
alter table penstock_intake.pool_mark     enable row level security;
alter table penstock_intake.pool_stock    enable row level security;
alter table penstock_intake.retired_slots enable row level security;
alter table penstock_intake.returned      enable row level security;
alter table pgmq.q_intake_queue           enable row level security;
alter table pgmq.q_intake_dlq             enable row level security;
alter table pgmq.a_intake_queue           enable row level security;
alter table pgmq.a_intake_dlq             enable row level security;

reset role;
