-- For schedulers outside that only want to send a hint when there is something to hint at. The last
-- look has no watermark: it also finds what was committed late, where no worker sweeps.
create or replace function app.outbox_waiting() returns uuid
language sql volatile security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
    select coalesce(
        (select o.id from public.outbox o
          where o.pos > pg_sequence_last_value('penstock.outbox_wm')
            and not (select app.outbox_joint()) @> o.seq order by o.pos limit 1),
        (select o.id from public.outbox o
          where o.next_attempt_at <= penstock.clock() order by o.next_attempt_at limit 1),
        (select o.id from public.outbox o
          where o.lease_expires_at <= penstock.clock() order by o.lease_expires_at limit 1),
        (select o.id from public.outbox_joint_leases j
          cross join unnest(j.seqs) as r (run)
          join public.outbox o on o.seq >= lower(r.run) and o.seq < upper(r.run) and o.pos <= j.upto
          where j.expires_at <= penstock.clock() order by j.expires_at limit 1),
        (select o.id from public.outbox o
          where o.pos is not null and not (select app.outbox_joint()) @> o.seq order by o.pos limit 1))
$$;

comment on function app.outbox_waiting() is 'An event that a worker could claim now, or null.';
revoke all on function app.outbox_waiting() from public;
grant execute on function app.outbox_waiting() to penstock_outbox_executor;
