-- Until the end of a call that begins now. A key that was first shown in the future was shown by
-- another clock: the server's has been set back, and how long ago it was is not known.
create or replace function penstock_payments.knows_key(
    p_rail_type text, p_first_sent_at timestamptz, p_now timestamptz
) returns boolean
language sql stable
as $$
    select p_first_sent_at > p_now + make_interval(secs => r.timeout_ms / 1000.0)
                             - r.idempotency_window
       and p_first_sent_at <= p_now + interval '1 minute'
    from public.payment_rails r
    where r.rail_type = p_rail_type and r.idempotency_window is not null
$$;

comment on function penstock_payments.knows_key(text, timestamptz, timestamptz) is
    'Whether a rail still recognises a key that it was first shown then; null for one without keys.';
revoke all on function penstock_payments.knows_key(text, timestamptz, timestamptz) from public;
