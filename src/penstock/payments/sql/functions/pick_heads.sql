-- A loose scan: one probe per participant finds its lowest number, however many wait behind it. It
-- takes no lock and decides nothing; lease_heads looks again. `offset 0` keeps each look a probe:
-- joined, and with statistics of an emptier moment, it would be a scan per participant.
create or replace function penstock_payments.pick_heads(
    p_after  text,
    p_limit  integer,
    p_probes integer,
    p_rails  text[],
    p_skip   text[],
    out ids  uuid[],
    out last_participant text,
    out more boolean
)
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_bitmapscan = off
as $$
declare
    v_now timestamptz := penstock.clock();
    v_paused text[] := penstock.paused('participant');
begin
    with recursive walk as (
        (select q.participant_id, q.outbox_id, q.rail_type, q.next_attempt_at, 1 as n
         from public.payment_outbox_pending q
         where q.participant_id > p_after
         order by q.participant_id, q.sequence_id limit 1)
        union all
        select x.participant_id, x.outbox_id, x.rail_type, x.next_attempt_at, w.n + 1
        from walk w
        cross join lateral (
            select q.participant_id, q.outbox_id, q.rail_type, q.next_attempt_at
            from public.payment_outbox_pending q
            where q.participant_id > w.participant_id
            order by q.participant_id, q.sequence_id limit 1) x
        where w.n < p_probes
    ), due as (
        -- No sorting here: the walk stops as soon as there are enough.
        select w.participant_id, w.outbox_id
        from walk w
        where w.next_attempt_at <= v_now
          and (p_rails is null or w.rail_type = any (p_rails))
          and w.rail_type <> all (p_skip)
          and w.participant_id <> all (v_paused)
          and not exists (select from public.payment_outbox_inflight i
                          where i.participant_id = w.participant_id offset 0)
          and not exists (select from penstock_payments.dead_letters d
                          where d.participant_id = w.participant_id and d.blocks offset 0)
        limit p_limit
    ), got as (
        select coalesce(array_agg(d.outbox_id), '{}') as ids, max(d.participant_id) as last,
               count(*) >= p_limit as is_full
        from due d
    )
    select g.ids,
           case when g.is_full then g.last else (select max(w.participant_id) from walk w) end,
           case when g.is_full then true else (select count(*) from walk) >= p_probes end
    into ids, last_participant, more
    from got g;
end
$$;

comment on function
    penstock_payments.pick_heads(text, integer, integer, text[], text[]) is
    'Due heads of participants after a name, where the walk ended, and whether more lie beyond.';
revoke all on function
    penstock_payments.pick_heads(text, integer, integer, text[], text[]) from public;
