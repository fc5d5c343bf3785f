create or replace function penstock_payments.prove_attempts()
returns table (invariant text, participant_id text, outbox_id uuid, detail text)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    -- First dispatches of a participant start in the order of their numbers.
    select 'M4', d.participant_id, d.outbox_id,
           format('number %s was dispatched after number %s', d.sequence_id, d.highest)
    from (
        select a.participant_id, a.outbox_id, a.sequence_id,
               max(a.sequence_id) over (
                   partition by a.participant_id order by a.claimed_at, a.attempt_id
                   rows between unbounded preceding and 1 preceding) as highest
        from public.payment_outbox_attempts a
        where a.attempt_no = 1
    ) d
    where d.sequence_id < d.highest
    union all
    -- Attempts are numbered 1 to k, odd ones are dispatches, each has one outcome unless in flight.
    select 'M5', n.participant_id, n.outbox_id,
           case when n.high <> n.count then 'attempt numbers have a gap'
                when n.misplaced > 0 then 'a dispatch has an even number or an outcome an odd one'
                when n.high % 2 = 1 and i.outbox_id is null then 'the last dispatch has no outcome'
                else 'in flight under another number' end
    from (
        select a.outbox_id, min(a.participant_id) as participant_id, max(a.attempt_no) as high,
               count(*) as count,
               count(*) filter (where (a.state = 'DISPATCHING') <> (a.attempt_no % 2 = 1))
                   as misplaced
        from public.payment_outbox_attempts a group by a.outbox_id
    ) n
    left join public.payment_outbox_inflight i on i.outbox_id = n.outbox_id
    where n.high <> n.count or n.misplaced > 0
       or (n.high % 2 = 1) <> (i.outbox_id is not null)
       or i.attempt_no <> n.high
    union all
    select 'M5', i.participant_id, i.outbox_id, 'in flight without a dispatch on record'
    from public.payment_outbox_inflight i
    where not exists (select from public.payment_outbox_attempts a
                      where a.outbox_id = i.outbox_id and a.attempt_no = i.attempt_no)
    union all
    -- DISPATCHED in the registry exactly if there is an attempt that says so.
    select 'M9', r.participant_id, r.outbox_id,
           format('the registry says %s, %s attempts say DISPATCHED',
                  coalesce(r.terminal_state, 'open'), coalesce(d.count, 0))
    from public.payment_outbox_registry r
    left join (
        select a.outbox_id, count(*) as count from public.payment_outbox_attempts a
        where a.state = 'DISPATCHED' group by a.outbox_id
    ) d on d.outbox_id = r.outbox_id
    where coalesce(d.count, 0)
          <> case when r.terminal_state = 'DISPATCHED' then 1 else 0 end
$$;

comment on function penstock_payments.prove_attempts() is
    'M4: dispatch in sequence. M5: numbering of attempts. M9: dispatched on both records or none.';
revoke all on function penstock_payments.prove_attempts() from public;
