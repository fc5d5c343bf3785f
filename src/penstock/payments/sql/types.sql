create type public.outbox_attempt_state as enum (
    'DISPATCHING', 'DISPATCHED', 'RETRYABLE', 'FAILED', 'ZOMBIE_REQUEUE'
);
comment on type public.outbox_attempt_state is 'What a row of payment_outbox_attempts records.';

-- How one payment in flight ends. States: DISPATCHED, RETRYABLE, FAILED, ZOMBIE_REQUEUE as in the
-- attempts; HELD stays in flight without a lease; RELEASED and RESOLVED are requeues that do not
-- count as an attempt.
create type penstock_payments.ending as (
    outbox_id      uuid,
    state          text,
    delay_s        double precision,
    rail_reference text,
    rail_code      text,
    error_code     text,
    error_message  text,
    latency_ms     integer
);
comment on type penstock_payments.ending is 'How one payment in flight ends.';

-- A payment that has left the flight and does not end there: it is sent back, or buried.
create type penstock_payments.departed as (
    outbox_id       uuid,
    instruction_id  text,
    participant_id  text,
    sequence_id     bigint,
    idempotency_key text,
    rail_type       text,
    payload         jsonb,
    headers         jsonb,
    created_at      timestamptz,
    attempt_no      integer,
    uncounted       integer,
    first_sent_at   timestamptz,
    state           text,
    delay_s         double precision,
    error_code      text,
    error_message   text
);
comment on type penstock_payments.departed is 'A payment that has left the flight and goes on.';

-- A row of finish_paid_and_claim: ended_id alone, or a claim as of claim_payment_outbox.
create type public.payment_succession as (
    ended_id         uuid,
    outbox_id        uuid,
    instruction_id   text,
    participant_id   text,
    sequence_id      bigint,
    idempotency_key  text,
    rail_type        text,
    payload          jsonb,
    headers          jsonb,
    created_at       timestamptz,
    attempt_no       integer,
    attempt          integer,
    max_attempts     integer,
    claimed_at       timestamptz,
    lease_token      uuid,
    lease_epoch      bigint,
    lease_expires_at timestamptz,
    lease_s          integer,
    first_sent_at    timestamptz
);
comment on type public.payment_succession is 'A payment that has ended, or the claim of the next.';
