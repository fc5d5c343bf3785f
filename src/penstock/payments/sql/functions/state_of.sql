create or replace function penstock_payments.state_of(p_outbox_id uuid, p_terminal text)
returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select coalesce(
        p_terminal,
        (select case when p.next_attempt_at = 'infinity' then 'HELD'
                     when p.attempt_count > p.uncounted then 'RETRYABLE'
                     else 'PENDING' end
         from public.payment_outbox_pending p where p.outbox_id = p_outbox_id),
        (select case when i.held_at is not null then 'HELD' else 'DISPATCHING' end
         from public.payment_outbox_inflight i where i.outbox_id = p_outbox_id),
        'LOST')
$$;

comment on function penstock_payments.state_of(uuid, text) is
    'The state of a payment: its terminal one, or where it stands in the hot tables.';
revoke all on function penstock_payments.state_of(uuid, text) from public;
