-- By age after a given place, so that those to which there is no answer do not keep out the others.
create or replace function public.payment_held(
    p_limit integer default 100, p_rails text[] default null,
    p_after timestamptz default '-infinity', p_after_id uuid default null
)
returns table (
    outbox_id uuid, instruction_id text, participant_id text, sequence_id bigint,
    idempotency_key text, rail_type text, payload jsonb, headers jsonb, attempt_no integer,
    held_at timestamptz, first_sent_at timestamptz, error_code text
)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
    select i.outbox_id, i.instruction_id, i.participant_id, i.sequence_id, i.idempotency_key,
           i.rail_type, i.payload, i.headers, i.attempt_no, i.held_at, i.first_sent_at,
           i.error_code
    from public.payment_outbox_inflight i
    join public.payment_rails r on r.rail_type = i.rail_type
    where i.held_at is not null and r.status_query and i.error_code <> 'OPERATOR_HOLD'
      and (p_rails is null or i.rail_type = any (p_rails))
      and (i.held_at > p_after or (i.held_at = p_after and i.outbox_id > p_after_id))
    order by i.held_at, i.outbox_id
    limit least(greatest(coalesce(p_limit, 100), 1), 1000)
$$;

comment on function public.payment_held(integer, text[], timestamptz, uuid) is
    'Held payments whose rail can be asked what became of them.';
revoke all on function public.payment_held(integer, text[], timestamptz, uuid) from public;
grant execute on function public.payment_held(integer, text[], timestamptz, uuid)
    to penstock_payments_executor;
