-- One statement: lock the heads that are still due and still heads, take them out of pending, put
-- them in flight and record the dispatch. The attempt's number comes from the locked row, never from
-- max(). The unique participant in flight is the arbiter where two claims see different heads.
-- Every look is a probe by one index, whatever the statistics say: `offset 0` keeps it from being
-- joined, `+ interval '0'` keeps the index of due times out of it.
create or replace function penstock_payments.lease_heads(
    p_ids uuid[], p_owner uuid, p_lease_s integer
) returns table (
    outbox_id uuid, instruction_id text, participant_id text, sequence_id bigint,
    idempotency_key text, rail_type text, payload jsonb, headers jsonb, created_at timestamptz,
    attempt_no integer, uncounted integer, claimed_at timestamptz, lease_token uuid,
    lease_expires_at timestamptz, first_sent_at timestamptz
)
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
    v_now timestamptz := penstock.clock();
    v_head text := lpad(to_hex(penstock.milliseconds(clock_timestamp())), 12, '0') || '7';
    v_seed bytea := uuid_send(gen_random_uuid());
    v_constraint text;
begin
    return query
        with head as materialized (
            select h.row_id
            from unnest(p_ids) as w (id)
            cross join lateral (
                select p.ctid as row_id
                from public.payment_outbox_pending p
                where p.outbox_id = w.id and p.next_attempt_at + interval '0' <= v_now
                  and not exists (select from public.payment_outbox_inflight i
                                  where i.participant_id = p.participant_id offset 0)
                  and not exists (select from public.payment_outbox_pending q
                                  where q.participant_id = p.participant_id
                                    and q.sequence_id < p.sequence_id offset 0)
                for update of p skip locked) h
        ), taken as (
            delete from public.payment_outbox_pending p
            where p.ctid = any (array(select h.row_id from head h))
            returning p.*
        ), leased as (
            insert into public.payment_outbox_inflight as i
                (outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type,
                 payload, headers, created_at, attempt_no, uncounted, claimed_at, lease_token,
                 lease_owner, lease_expires_at, first_sent_at, error_code)
            select t.outbox_id, t.instruction_id, t.participant_id, t.sequence_id,
                   t.idempotency_key, t.rail_type, t.payload, t.headers, t.created_at,
                   t.attempt_count + 1, t.uncounted, v_now,
                   substr(encode(sha256(v_seed || uuid_send(t.outbox_id)), 'hex'), 1, 32)::uuid,
                   p_owner,
                   v_now + make_interval(secs => p_lease_s), t.first_sent_at, t.claim_code
            from taken t
            returning i.*
        ), recorded as (
            insert into public.payment_outbox_attempts
                (attempt_id, outbox_id, instruction_id, participant_id, sequence_id,
                 idempotency_key, rail_type, payload, attempt_no, state, claimed_at, error_code,
                 created_at, lease_token, lease_owner)
            select penstock_payments.id_of(v_head, sha256(uuid_send(l.outbox_id) || v_seed)),
                   l.outbox_id, l.instruction_id, l.participant_id, l.sequence_id,
                   l.idempotency_key, l.rail_type, l.payload, l.attempt_no, 'DISPATCHING',
                   l.claimed_at, l.error_code, v_now, l.lease_token, l.lease_owner
            from leased l
        )
        select l.outbox_id, l.instruction_id, l.participant_id, l.sequence_id, l.idempotency_key,
               l.rail_type, l.payload, l.headers, l.created_at, l.attempt_no, l.uncounted,
               l.claimed_at, l.lease_token, l.lease_expires_at, l.first_sent_at
        from leased l;
exception when unique_violation then
    get stacked diagnostics v_constraint = constraint_name;
    if v_constraint = 'payment_outbox_inflight_participant' then
        raise exception using errcode = '40001', message = 'another claim took this participant';
    end if;
    raise;
end
$$;

comment on function penstock_payments.lease_heads(uuid[], uuid, integer) is
    'Move due heads from pending to in flight and record each as DISPATCHING.';
revoke all on function penstock_payments.lease_heads(uuid[], uuid, integer) from public;
