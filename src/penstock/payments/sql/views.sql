-- Shows what its reader may read: no payload, and the rights of the caller.
create or replace view public.supervisor_outbox_status with (security_invoker = true) as
    select r.outbox_id, r.instruction_id, r.participant_id, r.sequence_id, r.idempotency_key,
           r.rail_type,
           case when r.terminal_state is not null then r.terminal_state
                when i.held_at is not null or p.next_attempt_at = 'infinity' then 'HELD'
                when i.outbox_id is not null then 'DISPATCHING'
                when p.attempt_count > p.uncounted then 'RETRYABLE'
                when p.outbox_id is not null then 'PENDING'
                else 'LOST' end as state,
           coalesce(a.attempt_no, 0) as attempt_no, (coalesce(a.attempt_no, 0) + 1) / 2 as dispatches,
           p.next_attempt_at, i.lease_expires_at, i.held_at, a.claimed_at, a.completed_at,
           a.rail_reference, a.rail_code, coalesce(i.error_code, a.error_code) as error_code,
           a.latency_ms, r.replay_count, r.created_at, r.terminal_at
    from public.payment_outbox_registry r
    left join public.payment_outbox_pending p on p.outbox_id = r.outbox_id
    left join public.payment_outbox_inflight i on i.outbox_id = r.outbox_id
    left join lateral (
        select t.attempt_no, t.claimed_at, t.completed_at, t.rail_reference, t.rail_code,
               t.error_code, t.latency_ms
        from public.payment_outbox_attempts t
        where t.outbox_id = r.outbox_id
        order by t.attempt_no desc limit 1) a on true;
comment on view public.supervisor_outbox_status is
    'Every payment with its state and its last attempt, without payload.';

create or replace view penstock_payments.dead as
    select 'payments'::text as queue, d.outbox_id as id, d.rail_type as topic, 'DEAD'::text as state,
           d.error_code, penstock.fingerprint(d.error_code, d.error_message) as fingerprint,
           d.error_message as error, (d.attempt_no + 1) / 2 as attempts, d.created_at, d.dead_at
    from penstock_payments.dead_letters d
    union all
    select 'payments', i.outbox_id, i.rail_type, 'HELD', i.error_code,
           penstock.fingerprint(i.error_code, i.error_message), i.error_message,
           (i.attempt_no + 1) / 2, i.created_at, i.held_at
    from public.payment_outbox_inflight i where i.held_at is not null
    union all
    select 'payments', p.outbox_id, p.rail_type, 'HELD', 'OPERATOR_HOLD',
           penstock.fingerprint('OPERATOR_HOLD', null), null, (p.attempt_count + 1) / 2,
           p.created_at, p.created_at
    from public.payment_outbox_pending p where p.next_attempt_at = 'infinity';
comment on view penstock_payments.dead is 'Payments that need a person.';

create or replace view penstock_payments.stats as
    select 'payments'::text as queue,
           (select count(*) from public.payment_outbox_pending
             where next_attempt_at <= penstock.clock()) as ready,
           (select count(*) from public.payment_outbox_pending
             where next_attempt_at > penstock.clock() and next_attempt_at < 'infinity') as scheduled,
           (select count(*) from public.payment_outbox_inflight where held_at is null) as leased,
           (select count(*) from public.payment_outbox_inflight
             where held_at is null and lease_expires_at <= penstock.clock()) as expired,
           (select count(*) from penstock_payments.dead_letters) as dead,
           (select count(*) from public.payment_outbox_inflight where held_at is not null)
           + (select count(*) from public.payment_outbox_pending
               where next_attempt_at = 'infinity') as held,
           (select extract(epoch from penstock.clock() - min(created_at))::double precision
              from public.payment_outbox_pending
             where next_attempt_at <= penstock.clock()) as oldest_age_s;
comment on view penstock_payments.stats is 'Depth and trouble of payments, from the hot tables only.';

create or replace view public.payment_repeated_instructions with (security_invoker = true) as
    select r.instruction_id, count(*) as payments,
           count(*) filter (where r.terminal_state = 'DISPATCHED') as dispatched
    from public.payment_outbox_registry r
    group by r.instruction_id having count(*) > 1;
comment on view public.payment_repeated_instructions is
    'Instructions with more than one key: allowed by default, and worth a look.';
