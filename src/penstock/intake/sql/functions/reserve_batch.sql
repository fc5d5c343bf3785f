-- One attempt at a batch: sort, pick, write, send. Three statements instead of one, because plans
-- decide: a LIMIT that is an expression, or a join over the picked rows, is misjudged. Rows are
-- written in order of user, so that two batches with common users wait for each other in one order.
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
