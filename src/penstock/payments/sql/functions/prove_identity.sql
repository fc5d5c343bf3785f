create or replace function penstock_payments.prove_identity()
returns table (invariant text, participant_id text, outbox_id uuid, detail text)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    -- One payment per key: whatever stands in a table is the registry's, with the same content.
    select 'M2', x.participant_id, x.outbox_id, x.place || ' does not match the registry'
    from (
        select 'pending' as place, p.outbox_id, p.instruction_id, p.idempotency_key,
               p.participant_id, p.sequence_id, p.rail_type, p.payload
        from public.payment_outbox_pending p
        union all
        select 'inflight', i.outbox_id, i.instruction_id, i.idempotency_key, i.participant_id,
               i.sequence_id, i.rail_type, i.payload
        from public.payment_outbox_inflight i
        union all
        select 'attempt ' || a.attempt_no, a.outbox_id, a.instruction_id, a.idempotency_key,
               a.participant_id, a.sequence_id, a.rail_type, a.payload
        from public.payment_outbox_attempts a
    ) x
    left join public.payment_outbox_registry r
        on r.outbox_id = x.outbox_id and r.instruction_id = x.instruction_id
       and r.idempotency_key = x.idempotency_key and r.participant_id = x.participant_id
       and r.sequence_id = x.sequence_id and r.rail_type = x.rail_type
       and r.payload_sha256 = sha256(convert_to(x.payload::text, 'UTF8'))
    where r.outbox_id is null
    union all
    -- Numbers 1 to n per participant, and the counter stands behind the last.
    select 'M3', coalesce(n.participant_id, s.participant_id), null,
           format('numbers %s to %s, %s of them, counter at %s', n.low, n.high, n.count,
                  s.next_sequence_id)
    from (
        select r.participant_id, min(r.sequence_id) as low, max(r.sequence_id) as high,
               count(*) as count
        from public.payment_outbox_registry r group by r.participant_id
    ) n
    full join public.participant_outbox_sequences s on s.participant_id = n.participant_id
    where (n.low, n.high, n.count) is distinct from (1, n.count, n.high)
       or s.next_sequence_id is distinct from n.high + 1
$$;

comment on function penstock_payments.prove_identity() is
    'M2: one payment per key for ever. M3: sequence numbers without gap or duplicate.';
revoke all on function penstock_payments.prove_identity() from public;
