-- The commonest end, made quick: the rail paid, and there is nothing to decide. One statement ends
-- the payments that these tokens hold and leases the next of the same participants. What it does not
-- name as ended (a lost lease, a late success) is for finish_payment_attempts to judge; repeating it
-- changes nothing.
-- Whoever deletes the row in flight knows that nobody else has claimed for this participant: that
-- row is unique. The rules are those of next_heads and lease_heads. The array of row ids sees to it
-- that every end is deleted before the first claim is put in its place.
create or replace function public.finish_paid_and_claim(
    p_outbox_ids uuid[], p_tokens uuid[], p_rail_references text[], p_rail_codes text[],
    p_latencies_ms integer[], p_owner uuid, p_rails text[] default null, p_skip text[] default '{}'
) returns setof public.payment_succession
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
declare
    v_now timestamptz := penstock.clock();
    v_head text := lpad(to_hex(penstock.milliseconds(clock_timestamp())), 12, '0') || '7';
    v_seed bytea := uuid_send(gen_random_uuid());
    v_queue record;
begin
    select c.* into v_queue from penstock.queue_config c where c.queue = 'payments';
    return query with gone as (
        delete from public.payment_outbox_inflight i
        using unnest(p_outbox_ids, p_tokens, p_rail_references, p_rail_codes, p_latencies_ms)
            as e (id, token, reference, code, latency_ms)
        where i.outbox_id = any (array[e.id]) and i.lease_token = e.token and i.late_at is null
        returning i.*, e.reference, e.code, e.latency_ms
    ), head as materialized (
        select p.row_id from gone g
        cross join lateral (
            select q.ctid as row_id, q.rail_type from public.payment_outbox_pending q
            where q.participant_id = g.participant_id order by q.sequence_id limit 1) h
        cross join lateral (
            select p.ctid as row_id from public.payment_outbox_pending p
            where p.ctid = h.row_id and p.next_attempt_at + interval '0' <= v_now
            for update of p skip locked) p
        where (p_rails is null or h.rail_type = any (p_rails)) and h.rail_type <> all (p_skip)
          and not exists (select from penstock.pause)
          and not exists (select from public.payment_rails r where r.rail_type = h.rail_type
                                                 and r.max_concurrency is not null offset 0)
          and not exists (select from penstock_payments.dead_letters d
                          where d.participant_id = g.participant_id and d.blocks offset 0)
    ), taken as (
        delete from public.payment_outbox_pending p
        where p.ctid = any (array(select h.row_id from head h)) returning p.*
    ), leased as (
        insert into public.payment_outbox_inflight as i
            (outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type,
             payload, headers, created_at, attempt_no, uncounted, claimed_at, lease_token,
             lease_owner, lease_expires_at, first_sent_at, error_code)
        select t.outbox_id, t.instruction_id, t.participant_id, t.sequence_id, t.idempotency_key,
               t.rail_type, t.payload, t.headers, t.created_at, t.attempt_count + 1, t.uncounted,
               v_now, encode(substr(sha256(v_seed || uuid_send(t.outbox_id)), 1, 16), 'hex')::uuid,
               p_owner, v_now + v_queue.lease_s * interval '1 s', t.first_sent_at, t.claim_code
        from taken t returning i.*
    ), recorded as (
        insert into public.payment_outbox_attempts
            (attempt_id, outbox_id, instruction_id, participant_id, sequence_id, idempotency_key,
             rail_type, payload, claimed_at, created_at, lease_token, lease_owner, attempt_no,
             state, completed_at, rail_reference, rail_code, latency_ms, error_code)
        select penstock_payments.id_of(v_head, sha256(uuid_send(a.outbox_id) || v_seed)),
               a.outbox_id, a.instruction_id, a.participant_id, a.sequence_id, a.idempotency_key,
               a.rail_type, a.payload, a.claimed_at, v_now, a.lease_token, a.lease_owner, a.no,
               a.state::public.outbox_attempt_state, a.at, a.reference, a.code, a.latency_ms, a.why
        from (select l.*, null as reference, null as code, null as latency_ms,
                     l.attempt_no as no, 'DISPATCHING' as state, null as at, l.error_code as why
              from leased l
              union all
              select g.*, g.attempt_no + 1, 'DISPATCHED', v_now, null from gone g) a
    ), ended as (
        update public.payment_outbox_registry r
        set terminal_state = 'DISPATCHED', terminal_at = v_now, first_sent_at = g.first_sent_at
        from gone g where r.outbox_id = any (array[g.outbox_id])
    )
    select null::uuid, l.outbox_id, l.instruction_id, l.participant_id, l.sequence_id,
           l.idempotency_key, l.rail_type, l.payload, l.headers, l.created_at, l.attempt_no,
           (l.attempt_no + 1 - l.uncounted) / 2, v_queue.max_attempts, l.claimed_at, l.lease_token,
           l.lease_epoch, l.lease_expires_at, v_queue.lease_s, l.first_sent_at from leased l
    union all
    select g.outbox_id, null, null, null, null, null, null, null, null, null, null, null, null,
           null, null, null, null, null, null from gone g;
end
$$;

comment on function public.finish_paid_and_claim(uuid[], uuid[], text[], text[], integer[], uuid,
    text[], text[]) is
    'Record that payments were paid and lease the next of their participants, in one commit.';
revoke all on function public.finish_paid_and_claim(uuid[], uuid[], text[], text[], integer[], uuid,
    text[], text[]) from public;
grant execute on function public.finish_paid_and_claim(uuid[], uuid[], text[], text[], integer[],
    uuid, text[], text[]) to penstock_payments_executor;
