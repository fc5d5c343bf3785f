create or replace function penstock_payments.prove_places()
returns table (invariant text, participant_id text, outbox_id uuid, detail text)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    -- Open payments are in exactly one hot table, ended ones in none; the dead are those that failed
    -- and were not given up.
    select 'M6', r.participant_id, r.outbox_id,
           format('%s, in %s hot tables%s', coalesce(r.terminal_state, 'open'),
                  (p.outbox_id is not null)::integer + (i.outbox_id is not null)::integer,
                  case when d.outbox_id is not null then ', among the dead letters' else '' end)
    from public.payment_outbox_registry r
    left join public.payment_outbox_pending p on p.outbox_id = r.outbox_id
    left join public.payment_outbox_inflight i on i.outbox_id = r.outbox_id
    left join penstock_payments.dead_letters d on d.outbox_id = r.outbox_id
    where (p.outbox_id is not null)::integer + (i.outbox_id is not null)::integer
          <> (r.terminal_state is null)::integer
       or (d.outbox_id is not null)
          <> (r.terminal_state is not distinct from 'FAILED' and r.discarded_at is null)
    union all
    select 'M4', i.participant_id, i.outbox_id, 'in flight beside another of its participant'
    from public.payment_outbox_inflight i
    where exists (select from public.payment_outbox_inflight o
                  where o.participant_id = i.participant_id and o.outbox_id <> i.outbox_id)
$$;

comment on function penstock_payments.prove_places() is
    'M4: one in flight per participant. M6: every open payment is in exactly one place.';
revoke all on function penstock_payments.prove_places() from public;
