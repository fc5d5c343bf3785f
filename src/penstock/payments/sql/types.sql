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
