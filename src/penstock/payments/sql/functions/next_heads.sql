-- One probe per participant. It takes no lock and decides nothing; lease_heads looks again. A rail
-- with a bound is left to the claim that goes round: else who is served would be served for ever. So
-- is everything while anything is paused.
create or replace function penstock_payments.next_heads(
    p_participants text[], p_rails text[], p_skip text[]
) returns uuid[]
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
declare
    v_now timestamptz := penstock.clock();
begin
    if exists (select from penstock.pause) then
        return '{}';
    end if;
    return array(
        select h.outbox_id
        from unnest(p_participants) as w (participant_id)
        cross join lateral (
            select q.outbox_id, q.rail_type, q.next_attempt_at
            from public.payment_outbox_pending q
            where q.participant_id = w.participant_id
            order by q.sequence_id limit 1) h
        where h.next_attempt_at <= v_now
          and (p_rails is null or h.rail_type = any (p_rails))
          and h.rail_type <> all (p_skip)
          and not exists (select from public.payment_rails r
                          where r.rail_type = h.rail_type and r.max_concurrency is not null offset 0)
          and not exists (select from penstock_payments.dead_letters d
                          where d.participant_id = w.participant_id and d.blocks offset 0));
end
$$;

comment on function penstock_payments.next_heads(text[], text[], text[]) is
    'The due heads of given participants.';
revoke all on function penstock_payments.next_heads(text[], text[], text[]) from public;
