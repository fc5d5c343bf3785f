-- Written by tools/supabase_trees.py; change the package's SQL, then run `make fmt`.
-- Penstock schema: functions, triggers, views and grants of intake.
-- Run it in one transaction:  psql -1 -v ON_ERROR_STOP=1 -f FILE

do $lock$ begin perform pg_catalog.pg_advisory_xact_lock(5783942107311); end $lock$;
set local search_path = pg_catalog, pg_temp;
set local check_function_bodies = off;
set local client_min_messages = warning;
set local row_security = on;

set local role penstock_owner;

-- intake/functions/answer_requests.sql
create or replace function penstock_intake.answer_requests(
    p_all int[], p_kinds text[], p_old_ids uuid[], p_old_reservations uuid[], p_done int[],
    p_ids uuid[], p_reservations uuid[], p_rest text, p_user_ids text[], p_request_ids text[]
) returns table (ordinal int, outcome text, resource_id uuid, reservation_id uuid)
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
    v_outcomes text[] := array_replace(p_kinds, 'fresh', p_rest);
    v_at int;
    v_first int;
begin
    for v_at in 1 .. coalesce(cardinality(p_done), 0) loop
        v_outcomes[p_done[v_at]] := 'reserved';
        p_old_ids[p_done[v_at]] := p_ids[v_at];
        p_old_reservations[p_done[v_at]] := p_reservations[v_at];
    end loop;
    if 'copy' = any (p_kinds) then
        for v_at in select i from generate_subscripts(p_kinds, 1) i where p_kinds[i] = 'copy' loop
            select min(i) into v_first from generate_subscripts(p_all, 1) i
            where p_user_ids[i] = p_user_ids[v_at] and p_request_ids[i] = p_request_ids[v_at];
            v_outcomes[v_at] := case v_outcomes[v_first] when 'reserved' then 'again'
                                else v_outcomes[v_first] end;
            p_old_ids[v_at] := p_old_ids[v_first];
            p_old_reservations[v_at] := p_old_reservations[v_first];
        end loop;
    end if;
    return query select * from unnest(p_all, v_outcomes, p_old_ids, p_old_reservations);
end
$$;
comment on function penstock_intake.answer_requests(
    int[], text[], uuid[], uuid[], int[], uuid[], uuid[], text, text[], text[]) is
    'One answer per request of a batch.';
revoke all on function penstock_intake.answer_requests(
    int[], text[], uuid[], uuid[], int[], uuid[], uuid[], text, text[], text[]) from public;

-- intake/functions/as_uuid.sql
create or replace function penstock_intake.as_uuid(p_text text) returns uuid
language sql immutable parallel safe
as $$
    select case when p_text like '________-____-____-____-____________'
                 and p_text !~ '[^0-9a-fA-F-]' and length(replace(p_text, '-', '')) = 32
                then p_text::uuid end
$$;
comment on function penstock_intake.as_uuid(text) is 'The UUID that a text is, or NULL.';
revoke all on function penstock_intake.as_uuid(text) from public;
grant execute on function penstock_intake.as_uuid(text)
    to penstock_operator, penstock_control, penstock_readonly, penstock_auditor;

-- intake/functions/bring_back.sql
create or replace function penstock_intake.bring_back(p_net boolean, p_mark bigint) returns int
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
    v_now timestamptz := penstock.clock();
    v_floor timestamptz := case when p_net then '-infinity'
                                else penstock.time_floor('penstock.intake_due') end;
    v_lowest timestamptz;
    v_count int;
begin
    insert into penstock_intake.returned (msg_id)
    select q.msg_id from pgmq.q_intake_queue q
    where q.read_ct > 0 and q.vt > v_floor and q.vt <= v_now and q.msg_id <= p_mark
      and not exists (select from penstock_intake.returned r where r.msg_id = q.msg_id)
    order by q.vt limit 5000
    on conflict do nothing;
    get diagnostics v_count = row_count;
    select q.vt into v_lowest from pgmq.q_intake_queue q
    where q.read_ct > 0 and q.vt > v_floor order by q.vt limit 1;
    perform penstock.raise_time_floor('penstock.intake_due', coalesce(v_lowest, 'infinity'),
                                      interval '1 minute');
    return v_count;
end
$$;
comment on function penstock_intake.bring_back(boolean, bigint) is
    'List messages below the watermark whose lease ended or whose retry is due.';
revoke all on function penstock_intake.bring_back(boolean, bigint) from public;

-- intake/functions/check_reserve.sql
create or replace function penstock_intake.check_reserve(
    p_pool_id text, p_user_ids text[], p_request_ids text[], p_headers jsonb[]
) returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
    v_count int := cardinality(p_user_ids);
begin
    if coalesce(length(p_pool_id), 0) not between 1 and 200
       or coalesce(v_count, 0) not between 1 and 5000
       or array_position(p_user_ids, null) is not null or array_position(p_user_ids, '') is not null
       or array_position(p_request_ids, '') is not null
       or coalesce(cardinality(p_request_ids), v_count) <> v_count
       or coalesce(cardinality(p_headers), v_count) <> v_count then
        raise exception using
            errcode = '22023',
            message = 'a claim needs a pool and 1 to 5000 users, each with at most one request id',
            hint    = 'ids have 1 to 200 characters; the arrays have the same length';
    end if;
    if exists (select from unnest(p_headers) h where jsonb_typeof(h) <> 'object') then
        raise exception using errcode = '22023', message = 'headers are a JSON object';
    end if;
    if penstock_intake.may_act_for(variadic p_user_ids) is not true then
        raise exception using
            errcode = 'PN702',
            message = 'the token does not permit a claim for another user',
            hint    = 'leave the user to the token, or use the service role';
    end if;
end
$$;
comment on function penstock_intake.check_reserve(text, text[], text[], jsonb[]) is
    'Refuse a claim that is malformed or made in somebody else''s name.';
revoke all on function penstock_intake.check_reserve(text, text[], text[], jsonb[]) from public;

-- intake/functions/claim_resource_and_queue.sql
create or replace function public.claim_resource_and_queue(
    p_pool_id    text,
    p_user_id    text,
    p_request_id text default null
) returns uuid
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_answer record;
begin
    for v_attempt in 1 .. 6 loop
        select * into v_answer
        from public.intake_reserve(p_pool_id, array[p_user_id], array[p_request_id]);
        exit when v_answer.outcome <> 'busy';
        perform pg_sleep(0.005 * v_attempt * v_attempt);
    end loop;
    case v_answer.outcome
        when 'busy' then
            raise exception using errcode = 'PN302',
                message = format('all free slots of pool %s are being claimed now', p_pool_id),
                hint    = 'retry with the same request id';
        when 'limit_reached' then
            raise exception using errcode = 'PN303',
                message = format('this user has reached the limit of pool %s', p_pool_id);
        when 'not_open' then
            raise exception using errcode = 'PN304',
                message = format('pool %s is not open', p_pool_id);
        else
            return v_answer.resource_id;
    end case;
end
$$;
comment on function public.claim_resource_and_queue(text, text, text) is
    'Claim one slot for a user and queue its confirmation; NULL when sold out. A repeated request '
    'id gets the same slot. Raises PN302 busy, PN303 limit reached, PN304 not open.';
revoke all on function public.claim_resource_and_queue(text, text, text) from public;
grant execute on function public.claim_resource_and_queue(text, text, text)
    to penstock_intake_ingest, penstock_intake_executor;

-- intake/functions/count_stock.sql
create or replace function penstock_intake.count_stock() returns trigger
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    insert into penstock_intake.pool_stock as s (pool_id, stocked)
    select a.pool_id, count(*) from added a group by a.pool_id order by a.pool_id
    on conflict (pool_id) do update set stocked = s.stocked + excluded.stocked;
    perform penstock_intake.make_mark(a.pool_id)
    from (select distinct pool_id from added) a
    where not exists (select from penstock_intake.pool_mark m where m.pool_id = a.pool_id);
    return null;
end
$$;
comment on function penstock_intake.count_stock() is
    'Trigger: keeps the number of slots that a pool was given, and gives a new pool its watermark.';
revoke all on function penstock_intake.count_stock() from public;

-- intake/functions/dead_id.sql
create or replace function penstock_intake.dead_id(p_msg_id bigint, p_message jsonb) returns uuid
language sql immutable parallel safe
as $$
    select coalesce(penstock_intake.as_uuid(p_message ->> 'reservation_id'),
                    lpad(to_hex(coalesce((p_message ->> 'original_msg_id')::bigint, p_msg_id)),
                         32, '0')::uuid)
$$;
comment on function penstock_intake.dead_id(bigint, jsonb) is
    'The id of a dead letter: its reservation, or one made from its number if it has none.';
revoke all on function penstock_intake.dead_id(bigint, jsonb) from public;
grant execute on function penstock_intake.dead_id(bigint, jsonb)
    to penstock_operator, penstock_control, penstock_readonly, penstock_auditor;

-- intake/functions/discard_one.sql
create or replace function penstock_intake.discard_one(
    p_msg_id bigint, p_cancelled uuid[], p_reason text,
    out outcome text, out offered_id uuid, out message jsonb
)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    v_message jsonb;
    v_resource uuid;
    v_reservation uuid;
begin
    select d.message into v_message from pgmq.q_intake_dlq d where d.msg_id = p_msg_id;
    v_resource := penstock_intake.as_uuid(v_message ->> 'resource_id');
    v_reservation := coalesce(penstock_intake.as_uuid(v_message ->> 'reservation_id'), (
        select s.reservation_id from public.inventory_slots s
        where s.id = v_resource and s.locked_by = v_message ->> 'user_id'));
    perform penstock_intake.lock_pool(s.pool_id)
    from public.inventory_slots s where s.id = v_resource;
    perform from public.inventory_slots s where s.id = v_resource for update;
    -- Whoever held the slot may have taken the dead letter away: look again, now that it is ours.
    perform from pgmq.q_intake_dlq d where d.msg_id = p_msg_id for update;
    if not found then
        outcome := 'gone';
        return;
    end if;
    select f.outcome, f.offered_id into outcome, offered_id
    from penstock_intake.free_slot(v_resource, v_reservation,
        coalesce(v_reservation = any (p_cancelled), false), p_reason) f;
    if outcome <> 'started' then
        delete from pgmq.q_intake_dlq d where d.msg_id = p_msg_id returning d.message into message;
        outcome := case outcome when 'gone' then 'removed' else outcome end;
    end if;
end
$$;
comment on function penstock_intake.discard_one(bigint, uuid[], text) is
    'released, retired, removed (it held no slot), sold, started (cancel it first) or gone.';
revoke all on function penstock_intake.discard_one(bigint, uuid[], text) from public;

-- intake/functions/free_slot.sql
create or replace function penstock_intake.free_slot(
    p_resource_id uuid, p_reservation_id uuid, p_cancelled boolean, p_reason text,
    out outcome text, out offered_id uuid
)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    v_slot record;
begin
    perform penstock_intake.lock_pool(s.pool_id)
    from public.inventory_slots s where s.id = p_resource_id;
    select * into v_slot from public.inventory_slots s where s.id = p_resource_id for update;
    if v_slot.reservation_id is distinct from p_reservation_id or p_reservation_id is null then
        outcome := 'gone';
    elsif v_slot.status = 'CONSUMED' then
        outcome := 'sold';
    elsif v_slot.commit_started_at is null then
        update public.inventory_slots s set status = 'AVAILABLE' where s.id = p_resource_id;
        outcome := 'released';
        offered_id := p_resource_id;
    elsif not p_cancelled then
        outcome := 'started';
    else
        outcome := 'retired';
        offered_id := penstock.uuidv7();
        insert into penstock_intake.retired_slots (id, pool_id, replaced_by, locked_by,
            reservation_id, request_id, locked_at, commit_started_at, reason)
        values (v_slot.id, v_slot.pool_id, offered_id, v_slot.locked_by, v_slot.reservation_id,
            v_slot.request_id, v_slot.locked_at, v_slot.commit_started_at, p_reason);
        delete from public.inventory_slots s where s.id = p_resource_id;
        insert into public.inventory_slots (id, pool_id) values (offered_id, v_slot.pool_id);
        update penstock_intake.pool_stock t set stocked = t.stocked - 1
        where t.pool_id = v_slot.pool_id;
    end if;
end
$$;
comment on function penstock_intake.free_slot(uuid, uuid, boolean, text) is
    'released, retired (replaced by a new id), started (cancel in the ledger first), sold, gone.';
revoke all on function penstock_intake.free_slot(uuid, uuid, boolean, text) from public;

-- intake/functions/intake_begin_commit.sql
create or replace function public.intake_begin_commit(
    p_resource_ids uuid[], p_reservation_ids uuid[]
) returns setof uuid
language sql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
    update public.inventory_slots s
    set commit_started_at = coalesce(s.commit_started_at, penstock.clock())
    from (select * from unnest(p_resource_ids, p_reservation_ids) as a (id, reservation_id)
          order by a.id) a
    where s.id = a.id and s.reservation_id = a.reservation_id and s.status::text = 'RESERVED'
      and (s.commit_started_at is not null or s.hold_expires_at is null
           or s.hold_expires_at > penstock.clock())
    returning s.id
$$;
comment on function public.intake_begin_commit(uuid[], uuid[]) is
    'Write down that the commit of these reservations starts now; returns the resources that are '
    'still theirs. Only those may be committed.';
revoke all on function public.intake_begin_commit(uuid[], uuid[]) from public;
grant execute on function public.intake_begin_commit(uuid[], uuid[]) to penstock_intake_executor;

-- intake/functions/intake_begin_send.sql
create or replace function public.intake_begin_send(p_resource_id uuid, p_reservation_id uuid)
returns text
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
    v_now timestamptz := penstock.clock();
    v_sent_at timestamptz;
begin
    select s.sent_at into v_sent_at from public.inventory_slots s
    where s.id = p_resource_id and s.reservation_id = p_reservation_id
      and s.status::text = 'RESERVED'
      and (s.commit_started_at is not null or s.hold_expires_at is null
           or s.hold_expires_at > v_now)
    for update;
    if not found then
        return 'lost';
    elsif v_sent_at is not null then
        return 'again';
    end if;
    update public.inventory_slots s
    set sent_at = v_now, commit_started_at = coalesce(s.commit_started_at, v_now)
    where s.id = p_resource_id;
    return 'first';
end
$$;
comment on function public.intake_begin_send(uuid, uuid) is
    'Write down that the commit is sent to a webhook now: first, again (a call was made before) or '
    'lost (the slot is no longer this reservation''s: it must not be sent).';
revoke all on function public.intake_begin_send(uuid, uuid) from public;
grant execute on function public.intake_begin_send(uuid, uuid) to penstock_intake_executor;

-- intake/functions/intake_claim.sql
create or replace function public.intake_claim(p_limit int default null, p_lease_s int default null)
returns table (
    msg_id bigint, read_ct int, enqueued_at timestamptz, vt timestamptz, message jsonb,
    headers jsonb, pool_id text, resource_id uuid, user_id text, reservation_id uuid, slot text,
    validated boolean, commit_started boolean, exhausted boolean, hold_over boolean,
    configured boolean, max_retries int, lease_s int, validation_webhook_url text,
    commit_rpc_name text, commit_webhook_url text
)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
    v_now timestamptz := penstock.clock();
    v_paused text[] := penstock.paused('pool');
    v_ids bigint[];
begin
    if penstock.is_paused('intake') then
        return;
    end if;
    v_ids := penstock_intake.pick_messages(least(greatest(coalesce(p_limit, (
        select max(c.batch_size) from public.engine_config c where c.is_active), 100), 1), 1000));
    if cardinality(v_paused) > 0 then
        v_ids := penstock_intake.park_paused(v_ids, v_paused);
    end if;
    return query
        with leased as (
            update pgmq.q_intake_queue q
            set read_ct = q.read_ct + 1,
                headers = case when jsonb_typeof(q.headers) = 'object'
                               then q.headers - 'waiting' end,
                vt = v_now + make_interval(secs => coalesce(p_lease_s, (
                    select c.visibility_timeout_sec from public.engine_config c
                    where c.pool_id = q.message ->> 'pool_id'), 45))
            where q.msg_id = any (v_ids)
            returning q.msg_id, q.read_ct, q.enqueued_at, q.vt, q.message, q.headers,
                q.message ->> 'pool_id' as pool_id, q.message ->> 'user_id' as user_id,
                penstock_intake.as_uuid(q.message ->> 'resource_id') as resource_id,
                penstock_intake.as_uuid(q.message ->> 'reservation_id') as reservation_id
        ), joined as (
            select l.*, c.max_retries, c.validation_webhook_url, c.commit_rpc_name,
                c.commit_webhook_url, c.pool_id is not null as configured,
                l.read_ct > coalesce(c.max_retries, 10) as exhausted,
                s.status, s.validated_at, s.commit_started_at, s.reservation_id as slot_reservation,
                coalesce(s.hold_expires_at <= v_now and s.commit_started_at is null, false) as over,
                coalesce(s.reservation_id = l.reservation_id or (l.reservation_id is null
                    and s.locked_by = l.user_id), false) as ours
            from leased l
            left join public.engine_config c on c.pool_id = l.pool_id
            left join public.inventory_slots s on s.id = l.resource_id
        ), fenced as (
            update public.inventory_slots s
            set commit_started_at = v_now
            from joined j
            where s.id = j.resource_id and s.reservation_id = j.slot_reservation
              and s.status::text = 'RESERVED' and s.commit_started_at is null
              and j.ours and j.configured and not j.exhausted and not j.over
              and (j.validation_webhook_url is null or s.validated_at is not null)
            returning s.id
        )
        select j.msg_id, j.read_ct, j.enqueued_at, j.vt, j.message, j.headers, j.pool_id,
            j.resource_id, j.user_id, coalesce(j.reservation_id, j.slot_reservation),
            case when j.ours then lower(j.status::text) else 'foreign' end,
            j.validated_at is not null, j.commit_started_at is not null or f.id is not null,
            j.exhausted, j.over, j.configured, j.max_retries,
            extract(epoch from j.vt - v_now)::int, j.validation_webhook_url, j.commit_rpc_name,
            j.commit_webhook_url
        from joined j left join fenced f on f.id = j.resource_id
        order by j.msg_id;
end
$$;
comment on function public.intake_claim(int, int) is
    'Lease ready messages, mark their commit as started where it comes next, and return each with '
    'its slot''s state (reserved, consumed, foreign) and its pool''s settings.';
revoke all on function public.intake_claim(int, int) from public;
grant execute on function public.intake_claim(int, int) to penstock_intake_executor;

-- intake/functions/intake_complete.sql
create or replace function public.intake_complete(
    p_msg_ids bigint[], p_resource_ids uuid[], p_reservation_ids uuid[]
) returns table (msg_id bigint, outcome text)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
    v_msgs bigint[]; v_outcomes text[]; v_reservations uuid[]; v_gone text[];
begin
    with asked as materialized (
        select a.msg_id, a.id, a.reservation_id
        from unnest(p_msg_ids, p_resource_ids, p_reservation_ids) as a (msg_id, id, reservation_id)
        order by a.id
    ), consumed as (
        update public.inventory_slots s
        set status = 'CONSUMED', consumed_at = penstock.clock(),
            commit_started_at = coalesce(s.commit_started_at, penstock.clock())
        from asked a
        where s.id = a.id and s.reservation_id = a.reservation_id and s.status::text = 'RESERVED'
        returning s.id
    ), answered as (
        select a.msg_id, a.reservation_id, a.id,
               case when c.id is not null then 'consumed'
                    when exists (select from public.inventory_slots s
                                 where s.id = a.id and s.reservation_id = a.reservation_id
                                   and s.status = 'CONSUMED') then 'already'
                    else 'stale' end as outcome
        from asked a left join consumed c on c.id = a.id
    ), removed as (
        delete from pgmq.q_intake_queue q using answered a
        where q.msg_id = a.msg_id and a.outcome <> 'stale'
          and q.message ->> 'resource_id' = a.id::text
        returning q.msg_id
    )
    select array_agg(a.msg_id), array_agg(a.outcome), array_agg(a.reservation_id),
           array_agg(a.reservation_id::text)
               filter (where a.outcome <> 'stale' and r.msg_id is null)
    into v_msgs, v_outcomes, v_reservations, v_gone
    from answered a left join removed r on r.msg_id = a.msg_id;
    -- The message may have been dead-lettered while its commit was under way.
    if v_gone is not null then
        delete from pgmq.q_intake_dlq d where d.message ->> 'reservation_id' = any (v_gone);
    end if;
    if 'stale' = any (v_outcomes) then
        perform penstock.late_result('intake', r.id, r.id, null, 'done', 'PN305')
        from unnest(v_reservations, v_outcomes) as r (id, outcome)
        where r.outcome = 'stale' and r.id is not null;
    end if;
    return query select * from unnest(v_msgs, v_outcomes);
end
$$;
comment on function public.intake_complete(bigint[], uuid[], uuid[]) is
    'After the ledger confirmed: slots become CONSUMED and their messages go. Outcome per message: '
    'consumed, already (done before) or stale (the slot is not held by this reservation).';
revoke all on function public.intake_complete(bigint[], uuid[], uuid[]) from public;
grant execute on function public.intake_complete(bigint[], uuid[], uuid[])
    to penstock_intake_executor;

-- intake/functions/intake_discard.sql
create or replace function public.intake_discard(
    p_msg_ids bigint[], p_reason text, p_operator text default null,
    p_cancelled uuid[] default '{}'
) returns table (msg_id bigint, outcome text, offered_id uuid, audit_id uuid)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    v_message jsonb;
begin
    if cardinality(p_msg_ids) > 1000 then
        raise exception using errcode = 'PN005', message = 'at most 1000 messages in one call';
    end if;
    for msg_id in
        select i.msg_id from (select distinct unnest(p_msg_ids) as msg_id) i
        left join pgmq.q_intake_dlq d on d.msg_id = i.msg_id
        order by d.message ->> 'pool_id' collate "C", i.msg_id
    loop
        select r.outcome, r.offered_id, r.message into outcome, offered_id, v_message
        from penstock_intake.discard_one(msg_id, p_cancelled, p_reason) r;
        audit_id := case when v_message is not null then audit.record(
            'discard', 'pgmq.q_intake_dlq', jsonb_build_object('msg_id', msg_id,
                'id', v_message ->> 'reservation_id', 'outcome', outcome,
                'offered_id', offered_id, 'message', v_message), p_reason, p_operator) end;
        return next;
    end loop;
end
$$;
comment on function public.intake_discard(bigint[], text, text, uuid[]) is
    'Give up dead letters for good and free their slots; one audit row each. One whose commit was '
    'started answers "started" until p_cancelled names its reservation as cancelled in the ledger.';
revoke all on function public.intake_discard(bigint[], text, text, uuid[]) from public;
grant execute on function public.intake_discard(bigint[], text, text, uuid[])
    to penstock_operator;

-- intake/functions/intake_discard_items.sql
create or replace function public.intake_discard_items(
    p_ids uuid[], p_reason text, p_operator text default null
) returns table (id uuid, audit_id uuid)
language sql security definer
set search_path = pg_catalog, pg_temp
as $$
    select d.id, r.audit_id
    from (select x.msg_id, penstock_intake.dead_id(x.msg_id, x.message) as id
          from pgmq.q_intake_dlq x) d
    cross join lateral public.intake_discard(array[d.msg_id], p_reason, p_operator) r
    where d.id = any (p_ids) and r.audit_id is not null
$$;
comment on function public.intake_discard_items(uuid[], text, text) is
    'intake_discard by reservation id: the form that all queues share.';
revoke all on function public.intake_discard_items(uuid[], text, text) from public;
grant execute on function public.intake_discard_items(uuid[], text, text) to penstock_operator;

-- intake/functions/intake_dlq_list.sql
create or replace function public.intake_dlq_list(
    p_pool_id text default null, p_after bigint default 0, p_limit int default 100
) returns table (
    msg_id bigint, id uuid, pool_id text, resource_id uuid, original_msg_id bigint,
    final_read_ct int, replay_count int, error_code text, error text, enqueued_at timestamptz,
    routed_to_dlq_at timestamptz, commit_started boolean
)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
    select d.msg_id, penstock_intake.dead_id(d.msg_id, d.message), d.message ->> 'pool_id',
        penstock_intake.as_uuid(d.message ->> 'resource_id'),
        (d.message ->> 'original_msg_id')::bigint, (d.message ->> 'final_read_ct')::int,
        coalesce((d.message ->> 'replay_count')::int, 0), d.headers ->> 'error_code',
        d.headers ->> 'error', d.enqueued_at, (d.message ->> 'routed_to_dlq_at')::timestamptz,
        exists (select from public.inventory_slots s
                where s.id = penstock_intake.as_uuid(d.message ->> 'resource_id')
                  and s.commit_started_at is not null)
    from pgmq.q_intake_dlq d
    where d.msg_id > coalesce(p_after, 0)
      and (p_pool_id is null or d.message ->> 'pool_id' = p_pool_id)
    order by d.msg_id
    limit least(greatest(coalesce(p_limit, 100), 1), 1000)
$$;
comment on function public.intake_dlq_list(text, bigint, int) is
    'Dead letters of one pool or all, by number from p_after on; metadata only.';
revoke all on function public.intake_dlq_list(text, bigint, int) from public;
grant execute on function public.intake_dlq_list(text, bigint, int)
    to penstock_operator, penstock_readonly, penstock_auditor;

-- intake/functions/intake_dlq_show.sql
create or replace function public.intake_dlq_show(
    p_msg_ids bigint[], p_reason text, p_operator text default null
) returns table (msg_id bigint, message jsonb, headers jsonb, audit_id uuid)
language sql security definer
set search_path = pg_catalog, pg_temp
as $$
    with shown as (
        select d.msg_id, d.message, d.headers from pgmq.q_intake_dlq d
        where d.msg_id = any (p_msg_ids[1:1000])
    ), noted as materialized (
        select audit.record('show', 'pgmq.q_intake_dlq',
            jsonb_build_object('msg_ids', (select jsonb_agg(s.msg_id) from shown s)),
            p_reason, p_operator) as id
        where exists (select from shown)
    )
    select s.msg_id, s.message, s.headers, n.id from shown s cross join noted n order by s.msg_id
$$;
comment on function public.intake_dlq_show(bigint[], text, text) is
    'Dead letters with their payload; the look itself is audited.';
revoke all on function public.intake_dlq_show(bigint[], text, text) from public;
grant execute on function public.intake_dlq_show(bigint[], text, text) to penstock_operator;

-- intake/functions/intake_expire_holds.sql
create or replace function public.intake_expire_holds(p_limit int default 1000) returns int
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_ids uuid[];
    v_reservations uuid[];
begin
    if penstock.is_paused('intake') then
        return 0;
    end if;
    select array_agg(e.id), array_agg(e.reservation_id) into v_ids, v_reservations
    from (
        select s.id, s.reservation_id
        from public.inventory_slots s
        where s.status = 'RESERVED' and s.hold_expires_at <= penstock.clock()
          and s.commit_started_at is null
          and not exists (select from pgmq.q_intake_queue q
                          where q.message ->> 'reservation_id' = s.reservation_id::text
                            and q.read_ct > 0 and q.vt > penstock.clock())
        order by s.hold_expires_at limit least(greatest(p_limit, 1), 10000)
    ) e;
    if v_ids is null then
        return 0;
    end if;
    return (select count(*) from public.intake_release(v_ids, v_reservations, 'hold expired') r
            where r.outcome = 'released');
end
$$;
comment on function public.intake_expire_holds(int) is
    'Release reservations whose hold ran out before their commit started; returns how many.';
revoke all on function public.intake_expire_holds(int) from public;
grant execute on function public.intake_expire_holds(int)
    to penstock_intake_executor, penstock_operator;

-- intake/functions/intake_extend.sql
create or replace function public.intake_extend(
    p_msg_ids bigint[], p_read_cts int[], p_lease_s int
) returns table (msg_id bigint, vt timestamptz)
language sql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
    update pgmq.q_intake_queue q
    set vt = greatest(q.vt, penstock.clock()
             + make_interval(secs => least(greatest(coalesce(p_lease_s, 45), 1), 3600)))
    from (select * from unnest(p_msg_ids, p_read_cts) as a (msg_id, read_ct) order by a.msg_id) a
    where q.msg_id = a.msg_id and q.read_ct = a.read_ct
    returning q.msg_id, q.vt
$$;
comment on function public.intake_extend(bigint[], int[], int) is
    'Prolong leases; returns those still held (read_ct unchanged) with their new end.';
revoke all on function public.intake_extend(bigint[], int[], int) from public;
grant execute on function public.intake_extend(bigint[], int[], int) to penstock_intake_executor;

-- intake/functions/intake_give_back.sql
create or replace function public.intake_give_back(
    p_msg_ids bigint[], p_read_cts int[], p_vts timestamptz[]
) returns setof bigint
language sql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
    with given as (
        update pgmq.q_intake_queue q
        set vt = penstock.clock(), read_ct = q.read_ct - 1
        from (select * from unnest(p_msg_ids, p_read_cts, p_vts) as a (msg_id, read_ct, vt)
              order by a.msg_id) a
        where q.msg_id = a.msg_id and q.read_ct = a.read_ct and q.vt = a.vt and q.read_ct > 0
        returning q.msg_id
    ), listed as (
        insert into penstock_intake.returned (msg_id)
        select g.msg_id from given g order by g.msg_id on conflict do nothing
    )
    select g.msg_id from given g
$$;
comment on function public.intake_give_back(bigint[], int[], timestamptz[]) is
    'Return messages that were not started; the attempt does not count.';
revoke all on function public.intake_give_back(bigint[], int[], timestamptz[]) from public;
grant execute on function public.intake_give_back(bigint[], int[], timestamptz[])
    to penstock_intake_executor;

-- intake/functions/intake_pool_close.sql
create or replace function public.intake_pool_close(
    p_pool_id text, p_reason text, p_operator text default null
) returns uuid
language sql security definer
set search_path = pg_catalog, pg_temp
as $$
    select public.intake_pool_set(p_pool_id, '{"is_active": false}', p_reason, p_operator)
$$;
comment on function public.intake_pool_close(text, text, text) is
    'Sell no more from this pool; what is reserved is still confirmed. Audited.';
revoke all on function public.intake_pool_close(text, text, text) from public;
grant execute on function public.intake_pool_close(text, text, text)
    to penstock_operator, penstock_control;

-- intake/functions/intake_pool_open.sql
create or replace function public.intake_pool_open(
    p_pool_id text, p_reason text, p_operator text default null
) returns uuid
language sql security definer
set search_path = pg_catalog, pg_temp
as $$
    select public.intake_pool_set(p_pool_id,
        jsonb_build_object('is_active', true, 'opens_at', null, 'closes_at', null),
        p_reason, p_operator)
$$;
comment on function public.intake_pool_open(text, text, text) is
    'Sell from now on, without an end; audited.';
revoke all on function public.intake_pool_open(text, text, text) from public;
grant execute on function public.intake_pool_open(text, text, text)
    to penstock_operator, penstock_control;

-- intake/functions/intake_pool_schedule.sql
create or replace function public.intake_pool_schedule(
    p_pool_id text, p_opens_at timestamptz, p_closes_at timestamptz, p_reason text,
    p_operator text default null
) returns uuid
language sql security definer
set search_path = pg_catalog, pg_temp
as $$
    select public.intake_pool_set(p_pool_id,
        jsonb_build_object('is_active', true, 'opens_at', p_opens_at, 'closes_at', p_closes_at),
        p_reason, p_operator)
$$;
comment on function
    public.intake_pool_schedule(text, timestamptz, timestamptz, text, text) is
    'Sell between two times; NULL means without a beginning or an end. Audited.';
revoke all on function
    public.intake_pool_schedule(text, timestamptz, timestamptz, text, text) from public;
grant execute on function
    public.intake_pool_schedule(text, timestamptz, timestamptz, text, text)
    to penstock_operator, penstock_control;

-- intake/functions/intake_pool_set.sql
create or replace function public.intake_pool_set(
    p_pool_id text, p_settings jsonb, p_reason text, p_operator text default null
) returns uuid
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_unknown text;
begin
    select string_agg(k, ', ' order by k) into v_unknown
    from jsonb_object_keys(p_settings) k
    where k <> all (array['batch_size', 'visibility_timeout_sec', 'max_retries', 'is_active',
        'validation_webhook_url', 'commit_rpc_name', 'commit_webhook_url', 'opens_at', 'closes_at',
        'max_per_user', 'hold_s']);
    if v_unknown is not null or coalesce(p_pool_id, '') = '' then
        raise exception using errcode = '22023',
            message = format('pool %L: unknown settings: %s', p_pool_id,
                             coalesce(v_unknown, 'none'));
    end if;
    insert into public.engine_config (pool_id) values (p_pool_id) on conflict do nothing;
    insert into public.intake_pools (pool_id) values (p_pool_id) on conflict do nothing;
    update public.engine_config c
    set (batch_size, visibility_timeout_sec, max_retries, is_active, validation_webhook_url,
         commit_rpc_name, commit_webhook_url) = (
        select n.batch_size, n.visibility_timeout_sec, n.max_retries, n.is_active,
               n.validation_webhook_url, n.commit_rpc_name, n.commit_webhook_url
        from jsonb_populate_record(c, p_settings - 'pool_id') n)
    where c.pool_id = p_pool_id;
    update public.intake_pools i
    set (opens_at, closes_at, max_per_user, hold_s, updated_at) = (
        select n.opens_at, n.closes_at, n.max_per_user, n.hold_s, penstock.clock()
        from jsonb_populate_record(i, p_settings - 'pool_id') n)
    where i.pool_id = p_pool_id;
    return audit.record('pool_set', 'public.engine_config',
        jsonb_build_object('pool_id', p_pool_id, 'settings', p_settings), p_reason, p_operator);
end
$$;
comment on function public.intake_pool_set(text, jsonb, text, text) is
    'Create or change a pool''s settings (columns of engine_config and intake_pools); audited.';
revoke all on function public.intake_pool_set(text, jsonb, text, text) from public;
grant execute on function public.intake_pool_set(text, jsonb, text, text)
    to penstock_operator, penstock_control;

-- intake/functions/intake_pool_stock.sql
create or replace function public.intake_pool_stock(
    p_pool_id text, p_count int, p_reason text, p_operator text default null,
    p_ids uuid[] default null
) returns bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_head text := penstock_intake.uuidv7_head();
    v_seed bytea := uuid_send(gen_random_uuid());
    v_count bigint := coalesce(cardinality(p_ids), p_count);
begin
    if v_count is null or v_count not between 1 and 10000000 then
        raise exception using errcode = '22023', message = 'stock 1 to 10,000,000 slots at a time';
    end if;
    perform penstock_intake.lock_pool(p_pool_id);
    insert into public.engine_config (pool_id) values (p_pool_id) on conflict do nothing;
    if p_ids is not null then
        if exists (select from penstock_intake.retired_slots r where r.id = any (p_ids)) then
            raise exception using errcode = 'PN202',
                message = 'a retired resource id is never offered again';
        end if;
        insert into public.inventory_slots (id, pool_id) select i, p_pool_id from unnest(p_ids) i;
    else
        insert into public.inventory_slots (id, pool_id)
        select (v_head || lpad(to_hex(i::bigint * 4095 / p_count), 3, '0')
                || '8' || substr(encode(sha256(v_seed || int4send(i)), 'hex'), 1, 15))::uuid,
               p_pool_id
        from generate_series(1, p_count) i;
    end if;
    perform audit.record('pool_stock', 'public.inventory_slots',
        jsonb_build_object('pool_id', p_pool_id, 'count', v_count), p_reason, p_operator);
    return v_count;
end
$$;
comment on function public.intake_pool_stock(text, int, text, text, uuid[]) is
    'Put new slots of a pool on offer, with given ids or fresh ones; audited.';
revoke all on function public.intake_pool_stock(text, int, text, text, uuid[]) from public;
grant execute on function public.intake_pool_stock(text, int, text, text, uuid[])
    to penstock_operator, penstock_control;

-- intake/functions/intake_prove.sql
create or replace function public.intake_prove()
returns table (invariant text, subject text, detail text)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
    with messages as (
        select 'queue' as place, q.msg_id, q.message ->> 'resource_id' as resource,
               q.message ->> 'reservation_id' as reservation from pgmq.q_intake_queue q
        union all
        select 'dlq', d.msg_id, d.message ->> 'resource_id', d.message ->> 'reservation_id'
        from pgmq.q_intake_dlq d
    ), held as (
        select s.id, s.status, s.commit_started_at, count(m.msg_id) as messages
        from public.inventory_slots s
        left join messages m on m.resource = s.id::text
            and coalesce(m.reservation, s.reservation_id::text) = s.reservation_id::text
        where s.status <> 'AVAILABLE'
        group by s.id
    )
    select 'I4', 'pool ' || coalesce(t.pool_id, s.pool_id),
           format('given %s slots, has %s', coalesce(t.stocked, 0), coalesce(s.slots, 0))
    from penstock_intake.pool_stock t
    full join (
        select i.pool_id, count(*) as slots from public.inventory_slots i group by i.pool_id
    ) s on s.pool_id = t.pool_id
    where coalesce(t.stocked, 0) <> coalesce(s.slots, 0)
    union all
    select 'I5', 'slot ' || h.id, format('reserved, with %s messages', h.messages)
    from held h where h.status = 'RESERVED'
        and (h.messages > 1 or h.messages = 0 and h.commit_started_at is null)
    union all
    select 'I5', m.place || ' message ' || m.msg_id, 'speaks for a slot that is on offer'
    from messages m join public.inventory_slots s on s.id::text = m.resource
    where s.status = 'AVAILABLE'
    union all
    select 'I6', 'user of pool ' || s.pool_id, format('one request id holds %s slots', count(*))
    from public.inventory_slots s where s.request_id is not null
    group by s.pool_id, s.locked_by, s.request_id having count(*) > 1
    union all
    select 'I8', 'pool ' || m.pool_id,
           format('%s free slots lie below the watermark, where no claim looks', count(*))
    from penstock_intake.pool_mark m
    join public.inventory_slots s on s.pool_id = m.pool_id and s.status = 'AVAILABLE'
    where s.ord <= pg_sequence_last_value(m.watermark)
    group by m.pool_id
    union all
    select 'I9', 'slot ' || s.id, 'on offer although its commit had started'
    from public.inventory_slots s where s.status = 'AVAILABLE' and s.commit_started_at is not null
    union all
    select 'I9', 'slot ' || s.id, 'on offer although it was retired'
    from public.inventory_slots s join penstock_intake.retired_slots r on r.id = s.id
$$;
comment on function public.intake_prove() is
    'Violations of I4, I5, I6, I8 and I9 in the engine; no rows means that they hold.';
revoke all on function public.intake_prove() from public;
grant execute on function public.intake_prove()
    to penstock_operator, penstock_readonly, penstock_auditor;

-- intake/functions/intake_prove_sold.sql
create or replace function public.intake_prove_sold(
    p_after uuid default null, p_limit int default 10000
) returns table (resource_id uuid, pool_id text, user_id text, reservation_id uuid)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
    select s.id, s.pool_id, s.locked_by, s.reservation_id
    from public.inventory_slots s
    where s.status = 'CONSUMED' and (p_after is null or s.id > p_after)
    order by s.id
    limit least(greatest(coalesce(p_limit, 10000), 1), 100000)
$$;
comment on function public.intake_prove_sold(uuid, int) is
    'Sold slots by id, in pages. I2: read these first; the ledger must then have each as a ticket.';
revoke all on function public.intake_prove_sold(uuid, int) from public;
grant execute on function public.intake_prove_sold(uuid, int)
    to penstock_operator, penstock_readonly, penstock_auditor;

-- intake/functions/intake_prove_tickets.sql
create or replace function public.intake_prove_tickets(
    p_resource_ids uuid[], p_user_ids text[], p_reservation_ids uuid[]
) returns table (invariant text, subject text, detail text)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
    select case when s.id is null or s.status = 'AVAILABLE' then 'I3' else 'I1' end,
           'slot ' || t.id,
           case when r.id is not null then 'ticket for a retired slot'
                when s.id is null then 'ticket for a slot that does not exist'
                when s.status = 'AVAILABLE' then 'ticket for a slot that is on offer'
                else 'the ticket is another reservation''s than the slot' end
    from unnest(p_resource_ids, p_user_ids, p_reservation_ids) as t (id, user_id, reservation_id)
    left join public.inventory_slots s on s.id = t.id
    left join penstock_intake.retired_slots r on r.id = t.id
    where s.id is null or s.status = 'AVAILABLE' or s.locked_by <> t.user_id
       or s.reservation_id <> t.reservation_id
$$;
comment on function public.intake_prove_tickets(uuid[], text[], uuid[]) is
    'Tickets of the ledger that contradict the engine (I1, I3); no rows means that they hold.';
revoke all on function public.intake_prove_tickets(uuid[], text[], uuid[]) from public;
grant execute on function public.intake_prove_tickets(uuid[], text[], uuid[])
    to penstock_operator, penstock_readonly, penstock_auditor;

-- intake/functions/intake_purge_metrics.sql
create or replace function public.intake_purge_metrics(
    p_keep interval default '7 days', p_limit int default 10000
) returns int
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_count int;
begin
    delete from public.engine_metrics m
    where m.id in (
        select o.id from public.engine_metrics o
        where o.captured_at < penstock.clock() - coalesce(p_keep, interval '7 days')
        order by o.captured_at limit least(greatest(p_limit, 1), 100000) for update skip locked);
    get diagnostics v_count = row_count;
    return v_count;
end
$$;
comment on function public.intake_purge_metrics(interval, int) is
    'Remove metrics older than p_keep, at most p_limit rows; returns how many.';
revoke all on function public.intake_purge_metrics(interval, int) from public;
grant execute on function public.intake_purge_metrics(interval, int)
    to penstock_intake_executor, penstock_operator;

-- intake/functions/intake_queue_delete.sql
create or replace function public.intake_queue_delete(p_msg_ids bigint[]) returns setof bigint
language sql security definer
set search_path = pg_catalog, pg_temp
as $$ select d from pgmq.delete('intake_queue', p_msg_ids::bigint[]) as d $$;
comment on function public.intake_queue_delete(bigint[]) is
    'Remove messages from intake_queue; returns the ids that were there.';
revoke all on function public.intake_queue_delete(bigint[]) from public;
grant execute on function public.intake_queue_delete(bigint[]) to penstock_intake_executor;

-- intake/functions/intake_queue_read.sql
create or replace function public.intake_queue_read(p_visibility_timeout int, p_batch_size int)
returns table (msg_id bigint, read_ct int, enqueued_at timestamptz, vt timestamptz, message jsonb)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
    if coalesce(p_visibility_timeout, -1) < 0 or coalesce(p_batch_size, 0) < 1 then
        raise exception using errcode = '22023',
            message = 'visibility timeout and batch size must be given and positive';
    end if;
    return query
        select r.msg_id, r.read_ct, r.enqueued_at, r.vt, r.message
        from pgmq.read('intake_queue', p_visibility_timeout, least(p_batch_size, 1000)) r
        order by r.msg_id;
end
$$;
comment on function public.intake_queue_read(int, int) is
    'Lease up to batch size (at most 1000) messages for a time; each read counts in read_ct.';
revoke all on function public.intake_queue_read(int, int) from public;
grant execute on function public.intake_queue_read(int, int) to penstock_intake_executor;

-- intake/functions/intake_queue_send.sql
create or replace function public.intake_queue_send(p_payload jsonb) returns bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    if jsonb_typeof(p_payload) is distinct from 'object' then
        raise exception using errcode = '22023', message = 'a message is a JSON object';
    end if;
    return (select s from pgmq.send('intake_queue', p_payload, null::jsonb, penstock.clock()) as s);
end
$$;
comment on function public.intake_queue_send(jsonb) is 'Put a message on intake_queue.';
revoke all on function public.intake_queue_send(jsonb) from public;
grant execute on function public.intake_queue_send(jsonb) to penstock_intake_executor;

-- intake/functions/intake_ready.sql
create or replace function public.intake_ready() returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
    v_mark bigint := pg_sequence_last_value('penstock.intake_wm');
    v_now timestamptz := penstock.clock();
begin
    return (exists (select from pgmq.q_intake_queue q
                    where q.msg_id > v_mark and q.vt <= v_now order by q.msg_id limit 1)
            or exists (select from penstock_intake.returned r
                       where coalesce((select q.vt <= v_now or q.read_ct > 0
                                       from pgmq.q_intake_queue q
                                       where q.msg_id = r.msg_id), true)))
           and not penstock.is_paused('intake');
end
$$;
comment on function public.intake_ready() is 'Whether a claim now might find something.';
revoke all on function public.intake_ready() from public;
grant execute on function public.intake_ready() to penstock_intake_executor;

-- intake/functions/intake_reconcile.sql
create or replace function public.intake_reconcile(p_tickets jsonb)
returns table (resource_id uuid, outcome text)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    v_ticket record;
begin
    if jsonb_typeof(p_tickets) is distinct from 'array' then
        raise exception using errcode = '22023', message = 'tickets are a JSON array';
    end if;
    for v_ticket in
        select t.* from jsonb_to_recordset(p_tickets) as t (resource_id uuid, pool_id text,
            user_id text, reservation_id uuid, confirmed_at timestamptz)
        order by t.pool_id collate "C", t.resource_id
    loop
        resource_id := v_ticket.resource_id;
        outcome := penstock_intake.reconcile_one(v_ticket.resource_id, v_ticket.pool_id,
            v_ticket.user_id, v_ticket.reservation_id, v_ticket.confirmed_at);
        return next;
    end loop;
end
$$;
comment on function public.intake_reconcile(jsonb) is
    'Correct slots from confirmed tickets. Outcome per ticket: agreed, consumed, restored (the '
    'slot was missing), corrected (another reservation held it) or retired (needs a person).';
revoke all on function public.intake_reconcile(jsonb) from public;
grant execute on function public.intake_reconcile(jsonb)
    to penstock_intake_executor, penstock_operator;

-- intake/functions/intake_reject.sql
create or replace function public.intake_reject(
    p_msg_ids bigint[], p_read_cts int[], p_codes text[] default null, p_errors text[] default null
) returns table (msg_id bigint, dead_id bigint)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    v_dead record;
    v_ids uuid[] := '{}';
    v_pools text[] := '{}';
    v_codes text[] := '{}';
    v_errors text[] := '{}';
begin
    for v_dead in
        with gone as (
            delete from pgmq.q_intake_queue q
            using unnest(p_msg_ids, p_read_cts, p_codes, p_errors)
                as a (msg_id, read_ct, code, error)
            where q.msg_id = a.msg_id and q.read_ct = a.read_ct
            returning q.msg_id, q.read_ct, q.message, q.headers, left(a.error, 2000) as error,
                      coalesce(left(a.code, 100), q.headers ->> 'error_code', 'MAX_RETRIES') as code
        )
        select g.* from gone g order by g.msg_id
    loop
        msg_id := v_dead.msg_id;
        dead_id := (select s from pgmq.send('intake_dlq',
            v_dead.message || jsonb_build_object('original_msg_id', v_dead.msg_id,
                'final_read_ct', v_dead.read_ct, 'routed_to_dlq_at', penstock.clock()),
            case when jsonb_typeof(v_dead.headers) = 'object'
                 then v_dead.headers - 'waiting' else '{}' end
                || jsonb_strip_nulls(jsonb_build_object(
                'error_code', v_dead.code, 'error', v_dead.error)),
            penstock.clock()) as s);
        -- As the dead letter will be listed: its original number is ours, not what the sender wrote.
        v_ids := v_ids || penstock_intake.dead_id(v_dead.msg_id, jsonb_build_object(
            'reservation_id', v_dead.message ->> 'reservation_id'));
        v_pools := v_pools || (v_dead.message ->> 'pool_id');
        v_codes := v_codes || v_dead.code;
        v_errors := v_errors || v_dead.error;
        return next;
    end loop;
    perform penstock.alert('intake', v_ids, v_pools, array_fill('DEAD'::text, array[cardinality(v_ids)]),
                           v_codes, v_errors);
end
$$;
comment on function public.intake_reject(bigint[], int[], text[], text[]) is
    'Move messages to intake_dlq where the lease is still held (read_ct unchanged).';
revoke all on function public.intake_reject(bigint[], int[], text[], text[]) from public;
grant execute on function public.intake_reject(bigint[], int[], text[], text[])
    to penstock_intake_executor;

-- intake/functions/intake_release.sql
create or replace function public.intake_release(
    p_resource_ids uuid[], p_reservation_ids uuid[], p_reason text,
    p_cancelled uuid[] default '{}', p_msg_ids bigint[] default null
) returns table (resource_id uuid, outcome text, offered_id uuid)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    v_asked record;
    v_done text[] := '{}';
begin
    if coalesce(trim(p_reason), '') = '' then
        raise exception using errcode = 'PN205', message = 'a release needs a reason';
    end if;
    for v_asked in
        select a.id, a.reservation_id
        from unnest(p_resource_ids, p_reservation_ids) as a (id, reservation_id)
        left join public.inventory_slots s on s.id = a.id
        order by s.pool_id, a.id
    loop
        resource_id := v_asked.id;
        select f.outcome, f.offered_id into outcome, offered_id
        from penstock_intake.free_slot(v_asked.id, v_asked.reservation_id,
            v_asked.reservation_id = any (p_cancelled), p_reason) f;
        if outcome in ('released', 'retired') then
            v_done := v_done || v_asked.reservation_id::text;
        end if;
        return next;
    end loop;
    if cardinality(v_done) > 0 then
        delete from pgmq.q_intake_queue q
        where (p_msg_ids is null or q.msg_id = any (p_msg_ids))
          and q.message ->> 'reservation_id' = any (v_done);
        delete from pgmq.q_intake_dlq d where d.message ->> 'reservation_id' = any (v_done);
    end if;
end
$$;
comment on function public.intake_release(uuid[], uuid[], text, uuid[], bigint[]) is
    'End reservations unconfirmed and put their slots on offer again; p_cancelled names those that '
    'the ledger has cancelled. Outcome: released, retired, started, sold or gone.';
revoke all on function public.intake_release(uuid[], uuid[], text, uuid[], bigint[]) from public;
grant execute on function public.intake_release(uuid[], uuid[], text, uuid[], bigint[])
    to penstock_intake_executor;

-- intake/functions/intake_replay.sql
create or replace function public.intake_replay(
    p_msg_ids bigint[], p_reason text, p_operator text default null
) returns table (msg_id bigint, outcome text, new_msg_id bigint, audit_id uuid)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    v_message jsonb;
begin
    if cardinality(p_msg_ids) > 1000 then
        raise exception using errcode = 'PN005', message = 'at most 1000 messages in one call';
    end if;
    for msg_id in select distinct i from unnest(p_msg_ids) i order by i loop
        select r.outcome, r.new_msg_id, r.message into outcome, new_msg_id, v_message
        from penstock_intake.replay_one(msg_id) r;
        audit_id := case when outcome in ('replayed', 'sold') then audit.record(
            'replay', 'pgmq.q_intake_dlq', jsonb_build_object('msg_id', msg_id,
                'id', v_message ->> 'reservation_id', 'resource_id', v_message ->> 'resource_id',
                'outcome', outcome, 'new_msg_id', new_msg_id), p_reason, p_operator) end;
        return next;
    end loop;
end
$$;
comment on function public.intake_replay(bigint[], text, text) is
    'Put dead letters back on intake_queue with a new cycle of attempts, where their slot is still '
    'theirs; one audit row each. Outcome: replayed, sold, not_replayable or gone.';
revoke all on function public.intake_replay(bigint[], text, text) from public;
grant execute on function public.intake_replay(bigint[], text, text) to penstock_operator;

-- intake/functions/intake_replay_items.sql
create or replace function public.intake_replay_items(
    p_ids uuid[], p_reason text, p_operator text default null
) returns table (id uuid, audit_id uuid)
language sql security definer
set search_path = pg_catalog, pg_temp
as $$
    select d.id, r.audit_id
    from (select x.msg_id, penstock_intake.dead_id(x.msg_id, x.message) as id
          from pgmq.q_intake_dlq x) d
    cross join lateral public.intake_replay(array[d.msg_id], p_reason, p_operator) r
    where d.id = any (p_ids) and r.audit_id is not null
$$;
comment on function public.intake_replay_items(uuid[], text, text) is
    'intake_replay by reservation id: the form that all queues share.';
revoke all on function public.intake_replay_items(uuid[], text, text) from public;
grant execute on function public.intake_replay_items(uuid[], text, text) to penstock_operator;

-- intake/functions/intake_reserve.sql
create or replace function public.intake_reserve(
    p_pool_id     text,
    p_user_ids    text[],
    p_request_ids text[] default null,
    p_headers     jsonb[] default null
) returns table (ordinal int, outcome text, resource_id uuid, reservation_id uuid)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_requests text[] := coalesce(
        p_request_ids, array_fill(null::text, array[cardinality(p_user_ids)]));
    v_headers jsonb[];
begin
    perform penstock_intake.check_reserve(p_pool_id, p_user_ids, p_request_ids, p_headers);
    v_headers := penstock_intake.trace_headers(p_headers);
    for v_attempt in 1 .. 10 loop
        begin
            return query select * from penstock_intake.reserve_batch(
                p_pool_id, p_user_ids, v_requests, v_headers);
            return;
        exception when unique_violation then
            perform penstock_intake.lock_pool(p_pool_id);
        end;
    end loop;
    raise exception using
        errcode = '40001', message = 'the same users claim elsewhere at this moment';
end
$$;
comment on function public.intake_reserve(text, text[], text[], jsonb[]) is
    'Give each user a slot and queue its confirmation. Outcome per request: reserved, again (same '
    'request id: same slot), sold_out, busy, limit_reached or not_open. 1 to 5000 per call.';
revoke all on function public.intake_reserve(text, text[], text[], jsonb[]) from public;
grant execute on function public.intake_reserve(text, text[], text[], jsonb[])
    to penstock_intake_ingest, penstock_intake_executor;

-- intake/functions/intake_retry.sql
create or replace function public.intake_retry(
    p_msg_ids bigint[], p_read_cts int[], p_delays_s double precision[],
    p_codes text[] default null, p_errors text[] default null
) returns setof bigint
language sql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
    update pgmq.q_intake_queue q
    set vt = penstock.clock() + make_interval(secs => least(greatest(a.delay_s, 0), 86400)),
        headers = case when jsonb_typeof(q.headers) = 'object'
                       then q.headers else '{}' end || jsonb_strip_nulls(jsonb_build_object(
            'waiting', true, 'error_code', left(a.code, 100), 'error', left(a.error, 2000)))
    from (select * from unnest(p_msg_ids, p_read_cts, p_delays_s, p_codes, p_errors)
              as a (msg_id, read_ct, delay_s, code, error) order by a.msg_id) a
    where q.msg_id = a.msg_id and q.read_ct = a.read_ct
    returning q.msg_id
$$;
comment on function public.intake_retry(bigint[], int[], double precision[], text[], text[]) is
    'Try again after a delay, where the lease is still held; returns the ids that apply.';
revoke all on function
    public.intake_retry(bigint[], int[], double precision[], text[], text[]) from public;
grant execute on function
    public.intake_retry(bigint[], int[], double precision[], text[], text[])
    to penstock_intake_executor;

-- intake/functions/intake_route_to_dlq.sql
create or replace function public.intake_route_to_dlq(
    p_msg_id bigint, p_payload jsonb, p_read_ct int,
    p_error_code text default 'MAX_RETRIES', p_error text default null
) returns bigint
language sql security definer
set search_path = pg_catalog, pg_temp
as $$
    select r.dead_id
    from public.intake_reject(array[p_msg_id], array[p_read_ct], array[p_error_code],
                              array[p_error]) r
$$;
comment on function public.intake_route_to_dlq(bigint, jsonb, int, text, text) is
    'Move one message to intake_dlq if its read_ct is still the caller''s; NULL if not. The '
    'payload is taken from the queue, not from the caller.';
revoke all on function public.intake_route_to_dlq(bigint, jsonb, int, text, text) from public;
grant execute on function public.intake_route_to_dlq(bigint, jsonb, int, text, text)
    to penstock_intake_executor;

-- intake/functions/intake_seed_demo.sql
create or replace function public.intake_seed_demo(
    p_pool_id text default 'demo_concert_2026', p_count int default 1000
) returns int
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_missing int;
begin
    perform penstock_intake.lock_pool(p_pool_id);
    insert into public.engine_config (pool_id, batch_size, visibility_timeout_sec, max_retries,
                                      is_active)
    values (p_pool_id, 100, 45, 10, true)
    on conflict (pool_id) do nothing;
    v_missing := p_count - (select count(*) from public.inventory_slots s
                            where s.pool_id = p_pool_id);
    if v_missing > 0 then
        perform public.intake_pool_stock(p_pool_id, v_missing, 'demo data');
    end if;
    return greatest(v_missing, 0);
end
$$;
comment on function public.intake_seed_demo(text, int) is
    'The demo pool with its config row and slots; returns how many slots were added.';
revoke all on function public.intake_seed_demo(text, int) from public;
grant execute on function public.intake_seed_demo(text, int) to penstock_operator, penstock_control;

-- intake/functions/intake_status.sql
create or replace function public.intake_status(p_reservation_id uuid)
returns table (
    reservation_id uuid, resource_id uuid, pool_id text, state text, locked_at timestamptz,
    hold_expires_at timestamptz, consumed_at timestamptz, user_id text
)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
    select found.reservation_id, found.resource_id, found.pool_id, found.state, found.locked_at,
           found.hold_expires_at, found.consumed_at, found.locked_by
    from (
        select s.reservation_id, s.id, s.pool_id,
               case s.status when 'CONSUMED' then 'CONFIRMED' else 'RESERVED' end,
               s.locked_at, s.hold_expires_at, s.consumed_at, s.locked_by
        from public.inventory_slots s where s.reservation_id = p_reservation_id
        union all
        select r.reservation_id, r.id, r.pool_id, 'RELEASED', r.locked_at, null, null, r.locked_by
        from penstock_intake.retired_slots r where r.reservation_id = p_reservation_id
    ) as found (reservation_id, resource_id, pool_id, state, locked_at, hold_expires_at,
                consumed_at, locked_by)
    cross join lateral penstock_intake.may_act_for(found.locked_by) as m (allowed)
    where m.allowed
    limit 1
$$;
comment on function public.intake_status(uuid) is
    'What became of a reservation: RESERVED, CONFIRMED or RELEASED; no row if unknown.';
revoke all on function public.intake_status(uuid) from public;
grant execute on function public.intake_status(uuid)
    to penstock_intake_ingest, penstock_intake_executor, penstock_operator, penstock_readonly;

-- intake/functions/intake_story.sql
create or replace function public.intake_story(p_id uuid, p_payload boolean default false)
returns jsonb
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
    select jsonb_build_object(
        'queue', 'intake', 'id', p_id, 'topic', coalesce(s.pool_id, r.pool_id),
        'state', case when d.msg_id is not null then 'DEAD' when q.msg_id is not null
                      and q.vt > penstock.clock() then 'LEASED' when q.msg_id is not null
                      then 'READY' when s.status = 'CONSUMED' then 'DONE'
                      when r.id is not null then 'RELEASED' else s.status::text end,
        'resource_id', coalesce(s.id, r.id), 'created_at', coalesce(s.locked_at, r.locked_at),
        'validated_at', s.validated_at, 'consumed_at', s.consumed_at,
        'commit_started_at', coalesce(s.commit_started_at, r.commit_started_at),
        'hold_expires_at', s.hold_expires_at, 'replaced_by', r.replaced_by,
        'msg_id', coalesce(q.msg_id, d.msg_id), 'read_ct', q.read_ct, 'vt', q.vt,
        'error_code', coalesce(d.headers, q.headers) ->> 'error_code',
        'error', coalesce(d.headers, q.headers) ->> 'error',
        'headers', coalesce(s.headers, q.headers, d.headers),
        'payload', case when p_payload then coalesce(q.message, d.message) end,
        'late_results', (select coalesce(jsonb_agg(jsonb_build_object(
                'recorded_at', l.recorded_at, 'verdict', l.verdict, 'code', l.code)
                order by l.id), '[]')
            from penstock.late_results l where l.item_id = p_id),
        'audit', (select coalesce(jsonb_agg(jsonb_build_object(
                'id', a.id, 'at', a.at, 'operation', a.operation, 'actor', a.actor,
                'operator', a.operator, 'reason', a.reason) order by a.at), '[]')
            from audit.audit_logs a
            where a.table_name = 'pgmq.q_intake_dlq' and a.row_data ->> 'id' = p_id::text))
    from (select) as one
    left join public.inventory_slots s on s.reservation_id = p_id
    left join penstock_intake.retired_slots r on r.reservation_id = p_id
    left join pgmq.q_intake_queue q on q.message ->> 'reservation_id' = p_id::text
    left join pgmq.q_intake_dlq d on d.message ->> 'reservation_id' = p_id::text
    where coalesce(s.id, r.id) is not null or q.msg_id is not null or d.msg_id is not null
    limit 1
$$;
comment on function public.intake_story(uuid, boolean) is
    'Everything known about one reservation; the payload only if asked for.';
revoke all on function public.intake_story(uuid, boolean) from public;
grant execute on function public.intake_story(uuid, boolean) to penstock_operator, penstock_auditor;

-- intake/functions/intake_tend.sql
create or replace function public.intake_tend(p_now boolean default true)
returns table (reaped int, due int, swept int)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
    v_net boolean;
    v_mark bigint := pg_sequence_last_value('penstock.intake_wm');
    v_now_ms bigint := penstock.milliseconds(clock_timestamp());
    v_now timestamptz := penstock.clock();
    v_last bigint;
    v_lowest bigint;
begin
    reaped := 0; due := 0; swept := 0;
    if current_setting('transaction_isolation') <> 'read committed'
       or (not p_now and v_now_ms - pg_sequence_last_value('penstock.intake_lease') < 200)
       or not pg_try_advisory_xact_lock(hashtextextended('penstock.tend/intake', 0)) then
        return next;
        return;
    end if;
    perform setval('penstock.intake_lease', v_now_ms);
    v_net := penstock.net_due('intake');
    due := penstock_intake.bring_back(v_net, v_mark);
    swept := penstock_intake.sweep_messages(v_net);
    v_last := coalesce(pg_sequence_last_value('pgmq.q_intake_queue_msg_id_seq'), 0);
    select q.msg_id into v_lowest from pgmq.q_intake_queue q
    where q.msg_id > v_mark and q.vt <= v_now order by q.msg_id limit 1;
    perform penstock.raise_watermark('intake', coalesce(v_lowest, v_last + 1));
    reaped := penstock_intake.tend_pools(v_net);
    return next;
end
$$;
comment on function public.intake_tend(boolean) is
    'Bring back messages that are ready again, sweep late commits, raise the watermarks. Does '
    'nothing if it ran less than 0.2 s ago, unless p_now.';
revoke all on function public.intake_tend(boolean) from public;
grant execute on function public.intake_tend(boolean) to penstock_intake_executor;

-- intake/functions/intake_validated.sql
create or replace function public.intake_validated(
    p_resource_ids uuid[], p_reservation_ids uuid[]
) returns setof uuid
language sql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
    update public.inventory_slots s
    set validated_at = coalesce(s.validated_at, penstock.clock()),
        commit_started_at = coalesce(s.commit_started_at, penstock.clock())
    from (select * from unnest(p_resource_ids, p_reservation_ids) as a (id, reservation_id)
          order by a.id) a
    where s.id = a.id and s.reservation_id = a.reservation_id and s.status::text = 'RESERVED'
      and (s.commit_started_at is not null or s.hold_expires_at is null
           or s.hold_expires_at > penstock.clock())
    returning s.id
$$;
comment on function public.intake_validated(uuid[], uuid[]) is
    'Remember that validation said yes, so that a retry does not ask again, and start the commit; '
    'returns the resources that are still theirs.';
revoke all on function public.intake_validated(uuid[], uuid[]) from public;
grant execute on function public.intake_validated(uuid[], uuid[]) to penstock_intake_executor;

-- intake/functions/lock_pool.sql
create or replace function penstock_intake.lock_pool(p_pool_id text) returns void
language sql volatile
set search_path = pg_catalog, pg_temp
as $$ select pg_advisory_xact_lock(hashtextextended('penstock.pool/' || p_pool_id, 0)) $$;
comment on function penstock_intake.lock_pool(text) is
    'Be the only one to put slots of a pool on offer, until the transaction ends.';
revoke all on function penstock_intake.lock_pool(text) from public;

-- intake/functions/make_mark.sql
create or replace function penstock_intake.make_mark(p_pool_id text) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    v_name text := format('penstock_intake.%I', 'pool_' || to_hex(hashtextextended(p_pool_id, 0)));
begin
    execute format('create sequence %s minvalue 0 start 0', v_name);
    perform setval(v_name::regclass, 0);
    insert into penstock_intake.pool_mark (pool_id, watermark) values (p_pool_id, v_name);
end
$$;
comment on function penstock_intake.make_mark(text) is 'Create the watermark of a pool.';
revoke all on function penstock_intake.make_mark(text) from public;

-- intake/functions/may_act_for.sql
create or replace function penstock_intake.may_act_for(variadic p_user_ids text[]) returns boolean
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
    v_claims jsonb := nullif(current_setting('request.jwt.claims', true), '')::jsonb;
    v_caller name := coalesce(nullif(current_setting('role', true), 'none'), session_user);
begin
    return v_claims is null
        or coalesce(pg_has_role(
            v_caller, to_regrole('penstock_intake_executor')::oid, 'member'), false)
        or coalesce(pg_has_role(
            v_caller, to_regrole('penstock_operator')::oid, 'member'), false)
        or coalesce(p_user_ids <@ array[nullif(v_claims ->> 'sub', '')], false);
end
$$;
comment on function penstock_intake.may_act_for(text[]) is
    'Whether the caller may claim or ask for these users.';
revoke all on function penstock_intake.may_act_for(text[]) from public;

-- intake/functions/move_mark.sql
create or replace function penstock_intake.move_mark(
    p_pool_id text, p_watermark regclass, p_mark bigint, p_first tid
) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    c_stride constant bigint := 256;
begin
    if (select s.ord from public.inventory_slots s where s.ctid = p_first) > p_mark + c_stride then
        perform penstock_intake.raise_mark(p_pool_id, p_watermark, p_mark);
    end if;
end
$$;
comment on function penstock_intake.move_mark(text, regclass, bigint, tid) is
    'Move the watermark of a pool up if a claim had a long way to its first slot.';
revoke all on function penstock_intake.move_mark(text, regclass, bigint, tid) from public;

-- intake/functions/number_holders.sql
create or replace function penstock_intake.number_holders() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    perform pg_advisory_xact_lock(hashtextextended('penstock.limit/' || new.pool_id, 0));
    update public.inventory_slots s
    set user_nth = n.nth
    from (
        select o.id, row_number() over (partition by o.locked_by order by o.locked_at, o.id)
               + coalesce((select max(m.user_nth) from public.inventory_slots m
                           where m.pool_id = o.pool_id and m.locked_by = o.locked_by), 0) as nth
        from public.inventory_slots o
        where o.pool_id = new.pool_id and o.status <> 'AVAILABLE' and o.user_nth is null
    ) n
    where s.id = n.id;
    return null;
end
$$;
comment on function penstock_intake.number_holders() is
    'Trigger: number what users hold of a pool when it gets a limit.';
revoke all on function penstock_intake.number_holders() from public;

-- intake/functions/orphaned.sql
create or replace function penstock_intake.orphaned(p_before timestamptz, p_ids uuid[] default null)
returns table (id uuid, pool_id text)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select s.id, s.pool_id
    from public.inventory_slots s
    where s.status = 'RESERVED' and s.locked_at < p_before and s.commit_started_at is null
      and (p_ids is null or s.id = any (p_ids))
      and not exists (
          select from pgmq.q_intake_queue q
          where q.message ->> 'resource_id' = s.id::text
            and coalesce(q.message ->> 'reservation_id', s.reservation_id::text)
                = s.reservation_id::text)
      and not exists (
          select from pgmq.q_intake_dlq d
          where d.message ->> 'resource_id' = s.id::text
            and coalesce(d.message ->> 'reservation_id', s.reservation_id::text)
                = s.reservation_id::text)
$$;
comment on function penstock_intake.orphaned(timestamptz, uuid[]) is
    'Reserved slots without a message in either queue and without a started commit.';
revoke all on function penstock_intake.orphaned(timestamptz, uuid[]) from public;

-- intake/functions/park_paused.sql
create or replace function penstock_intake.park_paused(p_msg_ids bigint[], p_pools text[])
returns bigint[]
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    v_parked bigint[];
begin
    with parked as (
        update pgmq.q_intake_queue q set vt = penstock.clock() + interval '5 seconds'
        where q.msg_id = any (p_msg_ids) and q.message ->> 'pool_id' = any (p_pools)
        returning q.msg_id, q.read_ct
    ), listed as (
        insert into penstock_intake.returned (msg_id)
        select p.msg_id from parked p
        where p.read_ct = 0 and p.msg_id <= pg_sequence_last_value('penstock.intake_floor')
        order by p.msg_id on conflict do nothing
    )
    select coalesce(array_agg(p.msg_id), '{}') into v_parked from parked p;
    return array(select i from unnest(p_msg_ids) i where i <> all (v_parked) order by i);
end
$$;
comment on function penstock_intake.park_paused(bigint[], text[]) is
    'Take messages of paused pools out of a pick; returns the rest.';
revoke all on function penstock_intake.park_paused(bigint[], text[]) from public;

-- intake/functions/pick_messages.sql
create or replace function penstock_intake.pick_messages(p_limit int) returns bigint[]
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
    v_now timestamptz := penstock.clock();
    v_mark bigint := pg_sequence_last_value('penstock.intake_wm');
    v_listed bigint[];
    v_taken bigint[] := '{}';
begin
    v_listed := array(select r.msg_id from penstock_intake.returned r
                      where coalesce((select q.vt <= v_now or q.read_ct > 0
                                      from pgmq.q_intake_queue q where q.msg_id = r.msg_id), true)
                      order by r.msg_id limit p_limit for update skip locked);
    if cardinality(v_listed) > 0 then
        v_taken := array(
            select q.msg_id from pgmq.q_intake_queue q
            where q.msg_id = any (v_listed) and q.vt <= v_now
            order by q.msg_id for update skip locked);
        delete from penstock_intake.returned r
        where r.msg_id = any (v_listed)
          and (r.msg_id = any (v_taken)
               or not exists (select from pgmq.q_intake_queue q
                              where q.msg_id = r.msg_id
                                and (q.vt <= v_now or q.read_ct = 0)));
    end if;
    return v_taken || array(
        select q.msg_id from pgmq.q_intake_queue q
        where q.msg_id > v_mark and q.vt <= v_now
        order by q.msg_id limit greatest(p_limit - cardinality(v_taken), 0)
        for update skip locked);
end
$$;
comment on function penstock_intake.pick_messages(int) is 'Lock up to p_limit ready messages.';
revoke all on function penstock_intake.pick_messages(int) from public;

-- intake/functions/place_slot.sql
create or replace function penstock_intake.place_slot() returns trigger
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    if new.status = 'AVAILABLE' then
        if tg_op = 'UPDATE' and old.commit_started_at is not null then
            raise exception using
                errcode = 'PN202',
                message = format('slot %s has a started commit and is never offered again', old.id),
                hint    = 'release it with intake_release: it is retired and replaced by a new id';
        end if;
        perform pg_advisory_xact_lock(hashtextextended('penstock.pool/' || new.pool_id, 0));
        new.ord := nextval('penstock_intake.slot_ord');
        new.locked_by := null; new.locked_at := null; new.reservation_id := null;
        new.request_id := null; new.user_nth := null; new.hold_expires_at := null;
        new.validated_at := null; new.commit_started_at := null; new.consumed_at := null;
        new.headers := null; new.sent_at := null;
        return new;
    end if;
    new.ord := coalesce(new.ord, nextval('penstock_intake.slot_ord'));
    new.reservation_id := coalesce(new.reservation_id, penstock.uuidv7());
    new.locked_at := coalesce(new.locked_at, penstock.clock());
    return new;
end
$$;
comment on function penstock_intake.place_slot() is
    'Trigger: gives a slot its place in the line, and completes what was written by hand.';
revoke all on function penstock_intake.place_slot() from public;

-- intake/functions/pool_policy.sql
create or replace function penstock_intake.pool_policy(p_pool_id text)
returns table (is_open boolean, max_per_user int, hold_s int, watermark regclass)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select coalesce(c.is_active, true)
           and coalesce(p.opens_at <= penstock.clock(), true)
           and coalesce(p.closes_at > penstock.clock(), true),
           p.max_per_user, p.hold_s, m.watermark
    from (select) as one
    left join public.engine_config c on c.pool_id = p_pool_id
    left join public.intake_pools p on p.pool_id = p_pool_id
    left join penstock_intake.pool_mark m on m.pool_id = p_pool_id
$$;
comment on function penstock_intake.pool_policy(text) is 'What a claim must know of its pool.';
revoke all on function penstock_intake.pool_policy(text) from public;

-- intake/functions/raise_mark.sql
create or replace function penstock_intake.raise_mark(
    p_pool_id text, p_watermark regclass, p_mark bigint
) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
    v_lowest bigint;
begin
    select s.ord into v_lowest from public.inventory_slots s
    where s.pool_id = p_pool_id and s.status = 'AVAILABLE' and s.ord > p_mark
    order by s.ord limit 1;
    perform setval(p_watermark, v_lowest - 1) where v_lowest - 1 > p_mark;
    return v_lowest is not null;
end
$$;
comment on function penstock_intake.raise_mark(text, regclass, bigint) is
    'Raise the watermark of a pool to its lowest free slot; false where none is in sight.';
revoke all on function penstock_intake.raise_mark(text, regclass, bigint) from public;

-- intake/functions/reap_orphaned_slots.sql
create or replace function public.reap_orphaned_slots(
    p_stale_threshold interval default '10 minutes'
) returns int
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_before timestamptz := penstock.clock() - p_stale_threshold;
    v_ids uuid[];
    v_count int := 0;
begin
    if p_stale_threshold is null or p_stale_threshold < interval '0' then
        raise exception using errcode = '22023', message = 'the threshold must not be negative';
    end if;
    if penstock.is_paused('intake') then
        return 0;
    end if;
    v_ids := array(select o.id from penstock_intake.orphaned(v_before) o limit 10000);
    if cardinality(v_ids) = 0 then
        return 0;
    end if;
    perform penstock_intake.lock_pool(p.pool_id)
    from (select distinct s.pool_id from public.inventory_slots s where s.id = any (v_ids)
          order by s.pool_id) p;
    v_ids := array(select s.id from public.inventory_slots s
                   where s.id = any (v_ids) and s.status = 'RESERVED' and s.locked_at < v_before
                   order by s.id for update skip locked);
    update public.inventory_slots s set status = 'AVAILABLE'
    where s.id in (select o.id from penstock_intake.orphaned(v_before, v_ids) o);
    get diagnostics v_count = row_count;
    return v_count;
end
$$;
comment on function public.reap_orphaned_slots(interval) is
    'Put reserved slots back on offer that are older than the threshold, have no message in either '
    'queue and no started commit; returns how many.';
revoke all on function public.reap_orphaned_slots(interval) from public;
grant execute on function public.reap_orphaned_slots(interval)
    to penstock_intake_executor, penstock_operator;

-- intake/functions/reconcile_one.sql
create or replace function penstock_intake.reconcile_one(
    p_resource_id uuid, p_pool_id text, p_user_id text, p_reservation_id uuid, p_at timestamptz
) returns text
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    v_slot record;
    v_ours boolean;
begin
    perform penstock_intake.lock_pool(p_pool_id);
    select s.status, s.locked_by, s.reservation_id into v_slot
    from public.inventory_slots s where s.id = p_resource_id for update;
    if not found then
        if exists (select from penstock_intake.retired_slots r where r.id = p_resource_id) then
            return 'retired';
        end if;
        insert into public.inventory_slots (id, pool_id, status, locked_by, locked_at,
            reservation_id, commit_started_at, consumed_at)
        values (p_resource_id, p_pool_id, 'CONSUMED', p_user_id, p_at, p_reservation_id,
                p_at, p_at);
        return 'restored';
    end if;
    v_ours := v_slot.locked_by = p_user_id
              and v_slot.reservation_id = coalesce(p_reservation_id, v_slot.reservation_id);
    if v_ours and v_slot.status = 'CONSUMED' then
        return 'agreed';
    end if;
    update public.inventory_slots s
    set status = 'CONSUMED', locked_by = p_user_id, locked_at = coalesce(s.locked_at, p_at),
        reservation_id = coalesce(p_reservation_id, case when v_ours then s.reservation_id end,
                                  penstock.uuidv7()),
        request_id = case when v_ours then s.request_id end,
        user_nth = case when v_ours then s.user_nth end,
        commit_started_at = coalesce(s.commit_started_at, p_at, penstock.clock()),
        consumed_at = coalesce(p_at, penstock.clock())
    where s.id = p_resource_id;
    delete from pgmq.q_intake_queue q where q.message ->> 'reservation_id' = p_reservation_id::text;
    delete from pgmq.q_intake_dlq d where d.message ->> 'reservation_id' = p_reservation_id::text;
    return case when v_ours or v_slot.status = 'AVAILABLE' then 'consumed' else 'corrected' end;
end
$$;
comment on function penstock_intake.reconcile_one(uuid, text, text, uuid, timestamptz) is
    'Make one slot agree with its confirmed ticket.';
revoke all on function
    penstock_intake.reconcile_one(uuid, text, text, uuid, timestamptz) from public;

-- intake/functions/replay_one.sql
create or replace function penstock_intake.replay_one(
    p_msg_id bigint, out outcome text, out new_msg_id bigint, out message jsonb
)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    v_dead record;
    v_slot record;
begin
    select d.message, d.headers into v_dead from pgmq.q_intake_dlq d where d.msg_id = p_msg_id;
    if not found then
        outcome := 'gone';
        return;
    end if;
    select s.reservation_id, s.status, s.locked_by into v_slot from public.inventory_slots s
    where s.id = penstock_intake.as_uuid(v_dead.message ->> 'resource_id') for update;
    if v_slot.reservation_id is null
       or v_slot.reservation_id::text is distinct from
          coalesce(v_dead.message ->> 'reservation_id', case
              when v_slot.locked_by = v_dead.message ->> 'user_id'
              then v_slot.reservation_id::text end) then
        outcome := 'not_replayable';
        return;
    end if;
    delete from pgmq.q_intake_dlq d where d.msg_id = p_msg_id returning d.message into message;
    if message is null then
        outcome := 'gone';
    elsif v_slot.status = 'CONSUMED' then
        outcome := 'sold';
    else
        outcome := 'replayed';
        message := message - array['original_msg_id', 'final_read_ct', 'routed_to_dlq_at']
            || jsonb_build_object(
                'replay_count', coalesce((message ->> 'replay_count')::int, 0) + 1,
                'total_attempts', coalesce((message ->> 'total_attempts')::int, 0)
                                  + coalesce((message ->> 'final_read_ct')::int, 0));
        new_msg_id := (select n from pgmq.send('intake_queue', message,
            case when jsonb_typeof(v_dead.headers) = 'object'
                 then v_dead.headers - array['error_code', 'error'] end, penstock.clock()) as n);
    end if;
end
$$;
comment on function penstock_intake.replay_one(bigint) is
    'replayed, sold (already confirmed: the dead letter goes), not_replayable or gone.';
revoke all on function penstock_intake.replay_one(bigint) from public;

-- intake/functions/reserve_batch.sql
create or replace function penstock_intake.reserve_batch(
    p_pool_id text, p_user_ids text[], p_request_ids text[], p_headers jsonb[]
) returns table (ordinal int, outcome text, resource_id uuid, reservation_id uuid)
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
    v_policy record;
    v_mark bigint;
    v_all int[]; v_kinds text[]; v_old_ids uuid[]; v_old_reservations uuid[];
    v_new int[]; v_nths bigint[]; v_tids tid[];
    v_done int[]; v_ids uuid[]; v_reservations uuid[]; v_messages jsonb[]; v_headers jsonb[];
    v_head text := penstock_intake.uuidv7_head();
    v_seed bytea := uuid_send(gen_random_uuid());
    v_now timestamptz := penstock.clock();
    v_rest text := 'not_open';
    v_may_move boolean := pg_current_xact_id_if_assigned() is null
        and current_setting('transaction_isolation') = 'read committed';
begin
    perform pg_advisory_xact_lock_shared(hashtextextended('penstock.limit/' || p_pool_id, 0));
    select * into v_policy from penstock_intake.pool_policy(p_pool_id);
    v_mark := coalesce(pg_sequence_last_value(v_policy.watermark), 0);
    select array_agg(q.ordinal), array_agg(q.kind), array_agg(q.resource_id),
           array_agg(q.reservation_id),
           coalesce(array_agg(q.ordinal) filter (where q.kind = 'fresh'), '{}'),
           coalesce(array_agg(q.nth) filter (where q.kind = 'fresh'), '{}')
    into v_all, v_kinds, v_old_ids, v_old_reservations, v_new, v_nths
    from penstock_intake.sort_requests(
        p_pool_id, p_user_ids, p_request_ids, v_policy.max_per_user) q;
    if v_policy.is_open and cardinality(v_new) > 0 then
        v_tids := array(
            select s.ctid from public.inventory_slots s
            where s.pool_id = p_pool_id and s.status = 'AVAILABLE' and s.ord > v_mark
            order by s.ord limit cardinality(v_new) for update skip locked);
        if v_may_move and v_tids <> '{}' and v_policy.watermark is not null then
            perform penstock_intake.move_mark(p_pool_id, v_policy.watermark, v_mark, v_tids[1]);
        end if;
        with written as (
            update public.inventory_slots s
            set status = 'RESERVED', locked_by = p_user_ids[f.o], locked_at = v_now,
                request_id = p_request_ids[f.o], user_nth = f.nth, headers = p_headers[f.o],
                reservation_id = (v_head || substr(f.h, 1, 3) || '8' || substr(f.h, 4, 15))::uuid,
                hold_expires_at = v_now + make_interval(secs => v_policy.hold_s)
            from (select t.*, encode(sha256(v_seed || int4send(t.o)), 'hex') as h
                  from unnest(v_tids, v_new, v_nths) as t (tid, o, nth)
                  where t.tid is not null order by p_user_ids[t.o] collate "C", t.nth) f
            where s.ctid = f.tid
            returning f.o, s.id, s.reservation_id, s.locked_by, s.headers
        )
        select array_agg(w.o order by w.o), array_agg(w.id order by w.o),
               array_agg(w.reservation_id order by w.o),
               array_agg(jsonb_build_object('pool_id', p_pool_id, 'resource_id', w.id,
                   'user_id', w.locked_by, 'reservation_id', w.reservation_id,
                   'state', 'queued') order by w.o),
               array_agg(w.headers order by w.o)
        into v_done, v_ids, v_reservations, v_messages, v_headers
        from written w;
        if v_done is not null then
            perform pgmq.send_batch('intake_queue', v_messages, v_headers, v_now);
        end if;
        -- Free slots that others hold may come back; only their absence is "sold out".
        v_rest := case when cardinality(v_tids) < cardinality(v_new) and exists (
            select from public.inventory_slots s
            where s.pool_id = p_pool_id and s.status = 'AVAILABLE' and s.ord > v_mark)
            then 'busy' else 'sold_out' end;
    end if;
    return query select * from penstock_intake.answer_requests(
        v_all, v_kinds, v_old_ids, v_old_reservations, v_done, v_ids, v_reservations,
        v_rest, p_user_ids, p_request_ids);
end
$$;
comment on function penstock_intake.reserve_batch(text, text[], text[], jsonb[]) is
    'One attempt to give each request of a batch a slot; a unique violation means: ask again.';
revoke all on function penstock_intake.reserve_batch(text, text[], text[], jsonb[]) from public;

-- intake/functions/snapshot_engine_metrics.sql
create or replace function public.snapshot_engine_metrics() returns void
language sql security definer
set search_path = pg_catalog, pg_temp
as $$
    insert into public.engine_metrics (captured_at, pool_id, available_slots, reserved_slots,
                                       consumed_slots, queue_depth, dlq_depth)
    select penstock.clock(), c.pool_id, coalesce(s.available, 0), coalesce(s.reserved, 0),
           coalesce(s.consumed, 0), depth.queue, depth.dlq
    from public.engine_config c
    cross join (select (select count(*) from pgmq.q_intake_queue) as queue,
                       (select count(*) from pgmq.q_intake_dlq) as dlq) depth
    left join (
        select i.pool_id,
               count(*) filter (where i.status = 'AVAILABLE') as available,
               count(*) filter (where i.status = 'RESERVED') as reserved,
               count(*) filter (where i.status = 'CONSUMED') as consumed
        from public.inventory_slots i group by i.pool_id
    ) s on s.pool_id = c.pool_id
    where c.is_active
    order by c.pool_id
$$;
comment on function public.snapshot_engine_metrics() is
    'Write one row of counts per active pool into engine_metrics.';
revoke all on function public.snapshot_engine_metrics() from public;
grant execute on function public.snapshot_engine_metrics()
    to penstock_intake_executor, penstock_operator;

-- intake/functions/sort_requests.sql
create or replace function penstock_intake.sort_requests(
    p_pool_id text, p_user_ids text[], p_request_ids text[], p_max int
) returns table (ordinal int, kind text, nth bigint, resource_id uuid, reservation_id uuid)
language sql stable
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
    with probed as (
        select w.o, w.u, w.r, a.id, a.reservation_id, h.nths,
               coalesce(cardinality(h.nths), 0) as held,
               row_number() over (partition by w.u, w.r order by w.o) as copy
        from (select x.u collate "C" as u, x.r collate "C" as r, x.o
              from unnest(p_user_ids, p_request_ids) with ordinality as x (u, r, o)) w
        left join lateral (
            select s.id, s.reservation_id from public.inventory_slots s
            where s.pool_id = p_pool_id and s.locked_by = w.u and s.request_id = w.r
            limit 1
        ) a on true
        left join lateral (
            select array_agg(x.user_nth) as nths
            from (select s.user_nth from public.inventory_slots s
                  where s.pool_id = p_pool_id and s.locked_by = w.u and s.user_nth is not null
                  limit 1000) x
        ) h on p_max is not null
    ), counted as (
        select p.*, p.id is null and (p.r is null or p.copy = 1) as is_new,
               row_number() over (
                   partition by p.u, p.id is null and (p.r is null or p.copy = 1) order by p.o) as k
        from probed p
    )
    select c.o::int,
           case when c.id is not null then 'again'
                when not c.is_new then 'copy'
                when c.held + c.k > p_max then 'limit_reached'
                else 'fresh' end,
           case when p_max is null then null
                when c.held = 0 then c.k
                else (select n from generate_series(1, c.held + c.k) as n
                      where n <> all (c.nths) order by n offset c.k - 1 limit 1) end,
           c.id, c.reservation_id
    from counted c
    order by c.o
$$;
comment on function penstock_intake.sort_requests(text, text[], text[], int) is
    'Tell new requests of a batch from repeated ones and from those over the limit.';
revoke all on function penstock_intake.sort_requests(text, text[], text[], int) from public;

-- intake/functions/sweep_messages.sql
create or replace function penstock_intake.sweep_messages(p_net boolean) returns int
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_bitmapscan = off
as $$
declare
    v_now timestamptz := penstock.clock();
    v_range record;
    v_count int;
begin
    select s.lo, s.hi into v_range from penstock.begin_sweep('intake') s;
    if not found then
        return 0;
    end if;
    v_range.lo := case when p_net then -1 else v_range.lo end;
    insert into penstock_intake.returned (msg_id)
    select q.msg_id from pgmq.q_intake_queue q
    where q.msg_id > v_range.lo and q.msg_id <= v_range.hi and q.read_ct = 0 and q.vt <= v_now
    order by q.msg_id limit 5000
    on conflict do nothing;
    get diagnostics v_count = row_count;
    perform penstock.end_sweep('intake', (
        select q.msg_id from pgmq.q_intake_queue q
        where q.msg_id > v_range.lo and q.msg_id <= v_range.hi and q.read_ct = 0
        order by q.msg_id limit 1));
    return v_count;
end
$$;
comment on function penstock_intake.sweep_messages(boolean) is
    'List unread messages below the watermark, when a sweep is due.';
revoke all on function penstock_intake.sweep_messages(boolean) from public;

-- intake/functions/tend_pools.sql
create or replace function penstock_intake.tend_pools(p_net boolean) returns int
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
    v_pool record;
    v_mark bigint;
    v_lowest bigint;
    v_last bigint;
    v_mended int := 0;
begin
    for v_pool in select m.pool_id, m.watermark from penstock_intake.pool_mark m loop
        v_mark := pg_sequence_last_value(v_pool.watermark);
        if p_net then
            select s.ord into v_lowest from public.inventory_slots s
            where s.pool_id = v_pool.pool_id and s.status = 'AVAILABLE' order by s.ord limit 1;
            if v_lowest <= v_mark then
                v_mark := v_lowest - 1;
                perform setval(v_pool.watermark, v_mark);
                v_mended := v_mended + 1;
            end if;
        end if;
        continue when penstock_intake.raise_mark(v_pool.pool_id, v_pool.watermark, v_mark);
        continue when not pg_try_advisory_xact_lock(
            hashtextextended('penstock.pool/' || v_pool.pool_id, 0));
        v_last := pg_sequence_last_value('penstock_intake.slot_ord');
        perform from public.inventory_slots s
        where s.pool_id = v_pool.pool_id and s.status = 'AVAILABLE' and s.ord > v_mark
        order by s.ord limit 1;
        perform setval(v_pool.watermark, v_last) where not found and v_last > v_mark;
    end loop;
    return v_mended;
end
$$;
comment on function penstock_intake.tend_pools(boolean) is 'Raise the watermark of every pool.';
revoke all on function penstock_intake.tend_pools(boolean) from public;

-- intake/functions/trace_headers.sql
create or replace function penstock_intake.trace_headers(p_headers jsonb[]) returns jsonb[]
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
    select array_agg((
        select jsonb_object_agg(e.key, e.value) from jsonb_each(h.headers) e
        where e.key in ('traceparent', 'tracestate', 'baggage')
          and jsonb_typeof(e.value) = 'string') order by h.n)
    from unnest(p_headers) with ordinality as h (headers, n)
$$;
comment on function penstock_intake.trace_headers(jsonb[]) is
    'The trace context of each; null where there is none.';
revoke all on function penstock_intake.trace_headers(jsonb[]) from public;

-- intake/functions/uuidv7_head.sql
create or replace function penstock_intake.uuidv7_head() returns text
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
    select substr(h, 1, 8) || '-' || substr(h, 9, 4) || '-7'
    from lpad(to_hex(penstock.milliseconds(clock_timestamp())), 12, '0') as h
$$;
comment on function penstock_intake.uuidv7_head() is 'The first 15 characters of a UUID of now.';
revoke all on function penstock_intake.uuidv7_head() from public;

-- intake/triggers.sql
create or replace trigger inventory_slots_place_new
    before insert on public.inventory_slots
    for each row execute function penstock_intake.place_slot();
create or replace trigger inventory_slots_place_returned
    before update of status on public.inventory_slots
    for each row when (new.status = 'AVAILABLE' or new.reservation_id is null)
    execute function penstock_intake.place_slot();
create or replace trigger inventory_slots_count
    after insert on public.inventory_slots
    referencing new table as added
    for each statement execute function penstock_intake.count_stock();
create or replace trigger intake_pools_number_holders
    after insert or update of max_per_user on public.intake_pools
    for each row when (new.max_per_user is not null)
    execute function penstock_intake.number_holders();

-- intake/views.sql
create or replace view penstock_intake.dead as
    select 'intake'::text as queue, penstock_intake.dead_id(d.msg_id, d.message) as id,
           d.message ->> 'pool_id' as topic, 'DEAD'::text as state,
           d.headers ->> 'error_code' as error_code,
           penstock.fingerprint(d.headers ->> 'error_code', d.headers ->> 'error') as fingerprint,
           d.headers ->> 'error' as error, (d.message ->> 'final_read_ct')::integer as attempts,
           d.enqueued_at as created_at, d.enqueued_at as dead_at
    from pgmq.q_intake_dlq d;
comment on view penstock_intake.dead is 'Dead letters of intake.';
create or replace view penstock_intake.stats as
    select 'intake'::text as queue,
           count(*) filter (where q.vt <= c.now and q.read_ct = 0) as ready,
           count(*) filter (where q.vt > c.now and q.headers ? 'waiting') as scheduled,
           count(*) filter (where q.vt > c.now and q.read_ct > 0
                            and not coalesce(q.headers ? 'waiting', false)) as leased,
           count(*) filter (where q.vt <= c.now and q.read_ct > 0) as expired,
           (select count(*) from pgmq.q_intake_dlq) as dead, 0::bigint as held,
           extract(epoch from max(c.now - q.enqueued_at))::double precision as oldest_age_s
    from (select penstock.clock() as now) c left join pgmq.q_intake_queue q on true;
comment on view penstock_intake.stats is 'Depth and trouble of intake, from the queues only.';
create or replace view public.intake_pool_stats as
    select p.pool_id, coalesce(c.is_active, true) as is_active, i.opens_at, i.closes_at,
           i.max_per_user, i.hold_s, coalesce(t.stocked, 0) as stocked,
           coalesce(s.available, 0) as available, coalesce(s.reserved, 0) as reserved,
           coalesce(s.consumed, 0) as consumed
    from (select pool_id from public.engine_config union select pool_id from public.intake_pools
          union select pool_id from penstock_intake.pool_stock) p
    left join public.engine_config c on c.pool_id = p.pool_id
    left join public.intake_pools i on i.pool_id = p.pool_id
    left join penstock_intake.pool_stock t on t.pool_id = p.pool_id
    left join (
        select x.pool_id, count(*) filter (where x.status = 'AVAILABLE') as available,
               count(*) filter (where x.status = 'RESERVED') as reserved,
               count(*) filter (where x.status = 'CONSUMED') as consumed
        from public.inventory_slots x group by x.pool_id
    ) s on s.pool_id = p.pool_id;
comment on view public.intake_pool_stats is 'Every pool with its policy and counts.';

reset role;

-- intake/grants.sql
grant usage on schema penstock_intake to penstock_operator, penstock_readonly, penstock_auditor,
    penstock_control;
grant usage on schema public to penstock_intake_ingest, penstock_intake_executor,
    penstock_operator, penstock_readonly, penstock_auditor, penstock_control;

set local role penstock_owner;

-- intake/grants.sql
grant select on public.inventory_slots, public.engine_metrics, public.engine_config,
    public.intake_pools to "penstock_operator", "penstock_auditor";

-- intake/grants.sql (where the role exists)
do $grant$
begin
    if exists (select from pg_roles where rolname = 'service_role') then
        execute '-- Reading is for the back office and for the service role (the seed''s REST reads); no one changes a
-- table but through functions.
grant select on public.inventory_slots, public.engine_metrics, public.engine_config,
    public.intake_pools to "service_role" ';
    end if;
end
$grant$;

-- intake/grants.sql
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

-- intake: function bodies
set local penstock.argument = 'penstock_intake.answer_requests penstock_intake.as_uuid penstock_intake.bring_back penstock_intake.check_reserve penstock_intake.count_stock penstock_intake.dead_id penstock_intake.discard_one penstock_intake.free_slot penstock_intake.lock_pool penstock_intake.make_mark penstock_intake.may_act_for penstock_intake.move_mark penstock_intake.number_holders penstock_intake.orphaned penstock_intake.park_paused penstock_intake.pick_messages penstock_intake.place_slot penstock_intake.pool_policy penstock_intake.raise_mark penstock_intake.reconcile_one penstock_intake.replay_one penstock_intake.reserve_batch penstock_intake.sort_requests penstock_intake.sweep_messages penstock_intake.tend_pools penstock_intake.trace_headers penstock_intake.uuidv7_head public.claim_resource_and_queue public.intake_begin_commit public.intake_begin_send public.intake_claim public.intake_complete public.intake_discard public.intake_discard_items public.intake_dlq_list public.intake_dlq_show public.intake_expire_holds public.intake_extend public.intake_give_back public.intake_pool_close public.intake_pool_open public.intake_pool_schedule public.intake_pool_set public.intake_pool_stock public.intake_prove public.intake_prove_sold public.intake_prove_tickets public.intake_purge_metrics public.intake_queue_delete public.intake_queue_read public.intake_queue_send public.intake_ready public.intake_reconcile public.intake_reject public.intake_release public.intake_replay public.intake_replay_items public.intake_reserve public.intake_retry public.intake_route_to_dlq public.intake_seed_demo public.intake_status public.intake_story public.intake_tend public.intake_validated public.reap_orphaned_slots public.snapshot_engine_metrics';
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

-- intake: views over all queues
-- Products are installed one by one; the views over all of them are rebuilt after each.
do $views$
begin
    if to_regprocedure('penstock.install_views()') is not null then
        perform penstock.install_views();
    end if;
end
$views$;

reset role;

-- intake: record of version 1
insert into penstock.migration (product, version, name, checksum)
values ('intake', 1, 'definitions', '9af4f82774094f9275bd1655915253b775140cde3eebb9eb242e4a713c85efea')
on conflict (product, version) do update set checksum = excluded.checksum;

-- intake: record of its files
insert into penstock.catalog (object, kind, product, definition, digest)
values ('file intake/schema', 'file', 'intake', '1', 'a19fc5f6f2dbceb7d29afcd28c273c1181316354b68f5f7a4df175d885d562f0')
on conflict (object) do update
set definition = excluded.definition, digest = excluded.digest;

-- intake: record of its files
insert into penstock.catalog (object, kind, product, definition, digest)
values ('file intake/types', 'file', 'intake', '1', 'd7d27f5a7681f98869a10845d7899e346b89ba00fc25b2b387af1adfc9c2be89')
on conflict (object) do update
set definition = excluded.definition, digest = excluded.digest;

-- intake: record of its files
insert into penstock.catalog (object, kind, product, definition, digest)
values ('file intake/functions', 'file', 'intake', '1', '99edaf7bbcfe76e4ff972e42e0a85f39a82a7454b0f3acf749995085465a167f')
on conflict (object) do update
set definition = excluded.definition, digest = excluded.digest;

-- intake: record of its files
insert into penstock.catalog (object, kind, product, definition, digest)
values ('file intake/tables', 'file', 'intake', '1', 'ec466e9bb12e0b2f50427388072380a4f7f68e2af623207f3044474f98eff3c6')
on conflict (object) do update
set definition = excluded.definition, digest = excluded.digest;

-- intake: record of its files
insert into penstock.catalog (object, kind, product, definition, digest)
values ('file intake/triggers', 'file', 'intake', '1', 'ffe8a2f282ec77cfb5cc43e22025ea9a313150705f355b541b664d9fdaeed648')
on conflict (object) do update
set definition = excluded.definition, digest = excluded.digest;

-- intake: record of its files
insert into penstock.catalog (object, kind, product, definition, digest)
values ('file intake/views', 'file', 'intake', '1', 'c8ffadca99cf660143463ea3cffe3ac05779b3962feda8142f2dbadfe30d9746')
on conflict (object) do update
set definition = excluded.definition, digest = excluded.digest;

-- intake: record of its files
insert into penstock.catalog (object, kind, product, definition, digest)
values ('file intake/grants', 'file', 'intake', '1', 'ec223cef29039758bed38453dae0c7e4640ed4985dbeb36fc9677f37afac8724')
on conflict (object) do update
set definition = excluded.definition, digest = excluded.digest;

-- record of the catalog, for `penstock schema verify`
delete from penstock.catalog where kind <> 'file';
prepare penstock_snapshot (jsonb) as
insert into penstock.catalog (object, kind, product, definition, digest)
select object, kind, product, definition, digest from (
-- Describes every object of ours as text: definition, owner and rights. $1 is a JSON array of
-- {product, kind, schema, name}: what the packages create. A schema that belongs to us alone is
-- described whole, so that additions show; in a shared one (public) only the named objects are.
-- Partitions come and go by retention and are left out.
with wanted as (
    select distinct product, kind, schema, name
    from jsonb_to_recordset($1::jsonb) as w (product text, kind text, schema text, name text)
),
space as (
    select n.oid, n.nspname, n.nspowner, n.nspacl, w.product,
           w.product is not null
               and (n.nspname = 'penstock' or pg_get_userbyid(n.nspowner) = 'penstock_owner')
               as whole
    from pg_namespace n
    left join wanted w on w.kind = 'schema' and w.name = n.nspname
    where n.nspname in (select coalesce(schema, name) from wanted)
),
relation as (
    select c.oid, c.relkind, c.relowner, c.relacl, c.relpersistence, c.relrowsecurity,
           c.relforcerowsecurity, c.reloptions, coalesce(w.product, s.product) as product,
           format('%I.%I', s.nspname, c.relname) as id
    from pg_class c
    join space s on s.oid = c.relnamespace
    left join wanted w on w.kind = 'relation' and w.schema = s.nspname and w.name = c.relname
    where c.relkind in ('r', 'p', 'v', 'm', 'S')
      and not c.relispartition
      and (w.product is not null or s.whole)
),
described as (
    select 'schema' as kind, quote_ident(nspname) as id, product, '' as body,
           nspowner as owner, coalesce(nspacl, acldefault('n', nspowner)) as acl
    from space
    where whole

    union all
    select case relkind when 'v' then 'view' when 'm' then 'view' when 'S' then 'sequence'
                        else 'table' end,
           id, product,
           format('persistence %s, row security %s, forced %s, options %s%s%s%s', relpersistence,
                  relrowsecurity, relforcerowsecurity, coalesce(reloptions::text, '{}'),
                  case when relkind = 'p' then E'\npartition by ' || pg_get_partkeydef(oid) end,
                  case when relkind in ('v', 'm') then E'\n' || pg_get_viewdef(oid) end,
                  case when relkind = 'S' then (
                      select format(E'\n%s increment %s from %s to %s cycle %s cache %s',
                                    q.seqtypid::regtype, q.seqincrement, q.seqmin, q.seqmax,
                                    q.seqcycle, q.seqcache)
                      from pg_sequence q where q.seqrelid = relation.oid) end),
           relowner,
           coalesce(relacl, acldefault(case relkind when 'S' then 's' else 'r' end::"char",
                                       relowner))
    from relation

    union all
    select 'column', format('%s.%I', r.id, a.attname), r.product,
           format('%s%s%s%s%s', format_type(a.atttypid, a.atttypmod),
                  case when a.attnotnull then ' not null' end,
                  case when a.attidentity <> '' then ' identity ' || a.attidentity::text end,
                  case when a.attgenerated <> '' then ' generated ' || a.attgenerated::text end,
                  ' default ' || pg_get_expr(d.adbin, d.adrelid)),
           null, a.attacl
    from relation r
    join pg_attribute a on a.attrelid = r.oid and a.attnum > 0 and not a.attisdropped
    left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
    where r.relkind in ('r', 'p')

    union all
    -- Version 18 also lists NOT NULL here; the column says it already, in every version.
    select 'constraint', format('%s: %I', r.id, k.conname), r.product,
           pg_get_constraintdef(k.oid) || case when k.convalidated then '' else ' not valid' end,
           null, null
    from relation r
    join pg_constraint k on k.conrelid = r.oid
    where k.contype in ('c', 'f', 'p', 'u', 'x')

    union all
    select 'index', format('%s: %I', r.id, c.relname), r.product,
           pg_get_indexdef(i.indexrelid) || case when i.indisvalid then '' else ' invalid' end,
           null, null
    from relation r
    join pg_index i on i.indrelid = r.oid
    join pg_class c on c.oid = i.indexrelid

    union all
    select 'trigger', format('%s: %I', r.id, t.tgname), r.product,
           format('%s enabled %s', pg_get_triggerdef(t.oid), t.tgenabled), null, null
    from relation r
    join pg_trigger t on t.tgrelid = r.oid
    where not t.tgisinternal

    union all
    select 'policy', format('%s: %I', r.id, p.polname), r.product,
           format('%s permissive %s to %s using %s check %s', p.polcmd, p.polpermissive,
                  (select string_agg(case when o = 0 then 'public' else pg_get_userbyid(o)::text end,
                                     ', ' order by o) from unnest(p.polroles) as o),
                  coalesce(pg_get_expr(p.polqual, p.polrelid), '-'),
                  coalesce(pg_get_expr(p.polwithcheck, p.polrelid), '-')),
           null, null
    from relation r
    join pg_policy p on p.polrelid = r.oid

    union all
    select 'function',
           format('%I.%I(%s)', s.nspname, f.proname, pg_get_function_identity_arguments(f.oid)),
           coalesce(w.product, s.product),
           case when f.prokind in ('f', 'p') then pg_get_functiondef(f.oid)
                else f.prokind::text end,
           f.proowner, coalesce(f.proacl, acldefault('f', f.proowner))
    from pg_proc f
    join space s on s.oid = f.pronamespace
    left join wanted w on w.kind = 'function' and w.schema = s.nspname and w.name = f.proname
    where w.product is not null or s.whole

    union all
    select 'type', format('%I.%I', s.nspname, t.typname), coalesce(w.product, s.product),
           case t.typtype
               when 'e' then (select string_agg(e.enumlabel, ', ' order by e.enumsortorder)
                              from pg_enum e where e.enumtypid = t.oid)
               when 'd' then (select format('%s%s %s', format_type(t.typbasetype, t.typtypmod),
                                            case when t.typnotnull then ' not null' end,
                                            string_agg(pg_get_constraintdef(k.oid), ' '
                                                       order by k.conname))
                              from pg_constraint k where k.contypid = t.oid)
               else (select string_agg(format('%I %s', a.attname,
                                              format_type(a.atttypid, a.atttypmod)),
                                       ', ' order by a.attnum)
                     from pg_attribute a
                     where a.attrelid = t.typrelid and a.attnum > 0 and not a.attisdropped)
           end,
           t.typowner, coalesce(t.typacl, acldefault('T', t.typowner))
    from pg_type t
    join space s on s.oid = t.typnamespace
    left join pg_class c on c.oid = t.typrelid
    left join wanted w on w.kind = 'type' and w.schema = s.nspname and w.name = t.typname
    where (t.typtype in ('e', 'd') or (t.typtype = 'c' and c.relkind = 'c'))
      and (w.product is not null or s.whole)
),
complete as (
    select d.kind || ' ' || d.id as object, d.kind, coalesce(d.product, '') as product,
           coalesce(d.body, '')
           || case when d.owner is null then ''
                   else E'\nowner ' || pg_get_userbyid(d.owner) end
           || coalesce((
               select E'\nrights ' || string_agg(item, ', ' order by item collate "C")
               from (
                   select case when x.grantee = 0 then 'public'
                               else pg_get_userbyid(x.grantee)::text end
                          || '=' || x.privilege_type
                          || case when x.is_grantable then '*' else '' end as item
                   from aclexplode(d.acl) x
               ) rights), '') as definition
    from described d
)
select object, kind, product, definition,
       encode(sha256(convert_to(definition, 'UTF8')), 'hex') as digest
from complete
) as live;
execute penstock_snapshot ('[{"product": "kernel", "kind": "function", "schema": "penstock", "name": "alert"}, {"product": "intake", "kind": "function", "schema": "penstock_intake", "name": "answer_requests"}, {"product": "intake", "kind": "function", "schema": "penstock_intake", "name": "as_uuid"}, {"product": "kernel", "kind": "function", "schema": "penstock", "name": "begin_sweep"}, {"product": "intake", "kind": "function", "schema": "penstock_intake", "name": "bring_back"}, {"product": "intake", "kind": "function", "schema": "penstock_intake", "name": "check_reserve"}, {"product": "kernel", "kind": "function", "schema": "penstock", "name": "claim_jobs"}, {"product": "intake", "kind": "function", "schema": "public", "name": "claim_resource_and_queue"}, {"product": "kernel", "kind": "function", "schema": "penstock", "name": "clock"}, {"product": "intake", "kind": "function", "schema": "penstock_intake", "name": "count_stock"}, {"product": "kernel", "kind": "function", "schema": "penstock", "name": "create_position"}, {"product": "intake", "kind": "function", "schema": "penstock_intake", "name": "dead_id"}, {"product": "kernel", "kind": "function", "schema": "penstock", "name": "discard"}, {"product": "intake", "kind": "function", "schema": "penstock_intake", "name": "discard_one"}, {"product": "kernel", "kind": "function", "schema": "penstock", "name": "end_sweep"}, {"product": "kernel", "kind": "function", "schema": "penstock", "name": "farewell"}, {"product": "kernel", "kind": "function", "schema": "penstock", "name": "fingerprint"}, {"product": "kernel", "kind": "function", "schema": "penstock", "name": "finish_job"}, {"product": "intake", "kind": "function", "schema": "penstock_intake", "name": "free_slot"}, {"product": "kernel", "kind": "function", "schema": "penstock", "name": "heartbeat"}, {"product": "kernel", "kind": "function", "schema": "penstock", "name": "install_views"}, {"product": "intake", "kind": "function", "schema": "public", "name": "intake_begin_commit"}, {"product": "intake", "kind": "function", "schema": "public", "name": "intake_begin_send"}, {"product": "intake", "kind": "function", "schema": "public", "name": "intake_claim"}, {"product": "intake", "kind": "function", "schema": "public", "name": "intake_complete"}, {"product": "intake", "kind": "function", "schema": "public", "name": "intake_discard"}, {"product": "intake", "kind": "function", "schema": "public", "name": "intake_discard_items"}, {"product": "intake", "kind": "function", "schema": "public", "name": "intake_dlq_list"}, {"product": "intake", "kind": "function", "schema": "public", "name": "intake_dlq_show"}, {"product": "intake", "kind": "function", "schema": "public", "name": "intake_expire_holds"}, {"product": "intake", "kind": "function", "schema": "public", "name": "intake_extend"}, {"product": "intake", "kind": "function", "schema": "public", "name": "intake_give_back"}, {"product": "intake", "kind": "function", "schema": "public", "name": "intake_pool_close"}, {"product": "intake", "kind": "function", "schema": "public", "name": "intake_pool_open"}, {"product": "intake", "kind": "function", "schema": "public", "name": "intake_pool_schedule"}, {"product": "intake", "kind": "function", "schema": "public", "name": "intake_pool_set"}, {"product": "intake", "kind": "function", "schema": "public", "name": "intake_pool_stock"}, {"product": "intake", "kind": "function", "schema": "public", "name": "intake_prove"}, {"product": "intake", "kind": "function", "schema": "public", "name": "intake_prove_sold"}, {"product": "intake", "kind": "function", "schema": "public", "name": "intake_prove_tickets"}, {"product": "intake", "kind": "function", "schema": "public", "name": "intake_purge_metrics"}, {"product": "intake", "kind": "function", "schema": "public", "name": "intake_queue_delete"}, {"product": "intake", "kind": "function", "schema": "public", "name": "intake_queue_read"}, {"product": "intake", "kind": "function", "schema": "public", "name": "intake_queue_send"}, {"product": "intake", "kind": "function", "schema": "public", "name": "intake_ready"}, {"product": "intake", "kind": "function", "schema": "public", "name": "intake_reconcile"}, {"product": "intake", "kind": "function", "schema": "public", "name": "intake_reject"}, {"product": "intake", "kind": "function", "schema": "public", "name": "intake_release"}, {"product": "intake", "kind": "function", "schema": "public", "name": "intake_replay"}, {"product": "intake", "kind": "function", "schema": "public", "name": "intake_replay_items"}, {"product": "intake", "kind": "function", "schema": "public", "name": "intake_reserve"}, {"product": "intake", "kind": "function", "schema": "public", "name": "intake_retry"}, {"product": "intake", "kind": "function", "schema": "public", "name": "intake_route_to_dlq"}, {"product": "intake", "kind": "function", "schema": "public", "name": "intake_seed_demo"}, {"product": "intake", "kind": "function", "schema": "public", "name": "intake_status"}, {"product": "intake", "kind": "function", "schema": "public", "name": "intake_story"}, {"product": "intake", "kind": "function", "schema": "public", "name": "intake_tend"}, {"product": "intake", "kind": "function", "schema": "public", "name": "intake_validated"}, {"product": "kernel", "kind": "function", "schema": "penstock", "name": "is_paused"}, {"product": "kernel", "kind": "function", "schema": "penstock", "name": "keep_days"}, {"product": "kernel", "kind": "function", "schema": "penstock", "name": "late_result"}, {"product": "intake", "kind": "function", "schema": "penstock_intake", "name": "lock_pool"}, {"product": "kernel", "kind": "function", "schema": "penstock", "name": "make_days"}, {"product": "intake", "kind": "function", "schema": "penstock_intake", "name": "make_mark"}, {"product": "intake", "kind": "function", "schema": "penstock_intake", "name": "may_act_for"}, {"product": "kernel", "kind": "function", "schema": "penstock", "name": "may_run"}, {"product": "kernel", "kind": "function", "schema": "penstock", "name": "milliseconds"}, {"product": "intake", "kind": "function", "schema": "penstock_intake", "name": "move_mark"}, {"product": "kernel", "kind": "function", "schema": "penstock", "name": "net_due"}, {"product": "kernel", "kind": "function", "schema": "penstock", "name": "note_deaths"}, {"product": "intake", "kind": "function", "schema": "penstock_intake", "name": "number_holders"}, {"product": "intake", "kind": "function", "schema": "penstock_intake", "name": "orphaned"}, {"product": "intake", "kind": "function", "schema": "penstock_intake", "name": "park_paused"}, {"product": "kernel", "kind": "function", "schema": "penstock", "name": "pause_target"}, {"product": "kernel", "kind": "function", "schema": "penstock", "name": "paused"}, {"product": "intake", "kind": "function", "schema": "penstock_intake", "name": "pick_messages"}, {"product": "intake", "kind": "function", "schema": "penstock_intake", "name": "place_slot"}, {"product": "kernel", "kind": "function", "schema": "penstock", "name": "policy"}, {"product": "intake", "kind": "function", "schema": "penstock_intake", "name": "pool_policy"}, {"product": "kernel", "kind": "function", "schema": "penstock", "name": "purge_default"}, {"product": "kernel", "kind": "function", "schema": "penstock", "name": "put_job"}, {"product": "kernel", "kind": "function", "schema": "penstock", "name": "put_queue_config"}, {"product": "kernel", "kind": "function", "schema": "penstock", "name": "put_schedule"}, {"product": "intake", "kind": "function", "schema": "penstock_intake", "name": "raise_mark"}, {"product": "kernel", "kind": "function", "schema": "penstock", "name": "raise_time_floor"}, {"product": "kernel", "kind": "function", "schema": "penstock", "name": "raise_watermark"}, {"product": "intake", "kind": "function", "schema": "public", "name": "reap_orphaned_slots"}, {"product": "intake", "kind": "function", "schema": "penstock_intake", "name": "reconcile_one"}, {"product": "kernel", "kind": "function", "schema": "audit", "name": "record"}, {"product": "kernel", "kind": "function", "schema": "penstock", "name": "refuse_change"}, {"product": "kernel", "kind": "function", "schema": "penstock", "name": "replay"}, {"product": "intake", "kind": "function", "schema": "penstock_intake", "name": "replay_one"}, {"product": "intake", "kind": "function", "schema": "penstock_intake", "name": "reserve_batch"}, {"product": "kernel", "kind": "function", "schema": "penstock", "name": "resume_target"}, {"product": "intake", "kind": "function", "schema": "public", "name": "snapshot_engine_metrics"}, {"product": "intake", "kind": "function", "schema": "penstock_intake", "name": "sort_requests"}, {"product": "kernel", "kind": "function", "schema": "penstock", "name": "story"}, {"product": "intake", "kind": "function", "schema": "penstock_intake", "name": "sweep_messages"}, {"product": "kernel", "kind": "function", "schema": "penstock", "name": "take_deaths"}, {"product": "intake", "kind": "function", "schema": "penstock_intake", "name": "tend_pools"}, {"product": "kernel", "kind": "function", "schema": "penstock", "name": "time_floor"}, {"product": "intake", "kind": "function", "schema": "penstock_intake", "name": "trace_headers"}, {"product": "kernel", "kind": "function", "schema": "penstock", "name": "uuidv7"}, {"product": "intake", "kind": "function", "schema": "penstock_intake", "name": "uuidv7_head"}, {"product": "kernel", "kind": "relation", "schema": "audit", "name": "audit_logs"}, {"product": "kernel", "kind": "relation", "schema": "penstock", "name": "catalog"}, {"product": "intake", "kind": "relation", "schema": "penstock_intake", "name": "dead"}, {"product": "kernel", "kind": "relation", "schema": "penstock", "name": "deaths"}, {"product": "intake", "kind": "relation", "schema": "public", "name": "engine_config"}, {"product": "intake", "kind": "relation", "schema": "public", "name": "engine_metrics"}, {"product": "intake", "kind": "relation", "schema": "public", "name": "intake_pool_stats"}, {"product": "intake", "kind": "relation", "schema": "public", "name": "intake_pools"}, {"product": "intake", "kind": "relation", "schema": "public", "name": "inventory_slots"}, {"product": "kernel", "kind": "relation", "schema": "penstock", "name": "late_results"}, {"product": "kernel", "kind": "relation", "schema": "penstock", "name": "migration"}, {"product": "kernel", "kind": "relation", "schema": "penstock", "name": "pause"}, {"product": "intake", "kind": "relation", "schema": "penstock_intake", "name": "pool_mark"}, {"product": "intake", "kind": "relation", "schema": "penstock_intake", "name": "pool_stock"}, {"product": "kernel", "kind": "relation", "schema": "penstock", "name": "position"}, {"product": "kernel", "kind": "relation", "schema": "penstock", "name": "queue"}, {"product": "kernel", "kind": "relation", "schema": "penstock", "name": "queue_config"}, {"product": "intake", "kind": "relation", "schema": "penstock_intake", "name": "retired_slots"}, {"product": "intake", "kind": "relation", "schema": "penstock_intake", "name": "returned"}, {"product": "kernel", "kind": "relation", "schema": "penstock", "name": "schedule"}, {"product": "intake", "kind": "relation", "schema": "penstock_intake", "name": "slot_ord"}, {"product": "intake", "kind": "relation", "schema": "penstock_intake", "name": "stats"}, {"product": "kernel", "kind": "relation", "schema": "penstock", "name": "worker"}, {"product": "kernel", "kind": "schema", "name": "audit"}, {"product": "kernel", "kind": "schema", "name": "penstock"}, {"product": "intake", "kind": "schema", "name": "penstock_intake"}, {"product": "intake", "kind": "type", "schema": "public", "name": "slot_status"}]');
deallocate penstock_snapshot;
insert into penstock.catalog (object, kind, product, definition, digest)
values ('file server', 'file', '', '',
        (current_setting('server_version_num')::integer / 10000)::text)
on conflict (object) do update set digest = excluded.digest;
