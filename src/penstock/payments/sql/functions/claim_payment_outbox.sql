-- Rotates over the participants: p_after is where the last claim ended, '' is the beginning, and at
-- the end it wraps by itself. No row at all means that nothing can be claimed now. A row without an
-- outbox_id says that the walk was cut short before it found something: go on at its cursor_at.
create or replace function public.claim_payment_outbox(
    p_limit  integer default 100,
    p_owner  uuid default null,
    p_after  text default '',
    p_rails  text[] default null,
    p_skip   text[] default '{}',
    p_probes integer default null
) returns table (
    outbox_id uuid, instruction_id text, participant_id text, sequence_id bigint,
    idempotency_key text, rail_type text, payload jsonb, headers jsonb, created_at timestamptz,
    attempt_no integer, attempt integer, max_attempts integer, claimed_at timestamptz,
    lease_token uuid, lease_epoch bigint, lease_expires_at timestamptz, lease_s integer,
    first_sent_at timestamptz, cursor_at text
)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    v_limit integer := least(greatest(coalesce(p_limit, 100), 1), 1000);
    v_probes integer := least(greatest(coalesce(p_probes, v_limit * 4), 100), 4000);
    v_skip text[] := coalesce(p_skip, '{}') || penstock.paused('rail');
    v_after text := coalesce(p_after, '');
    v_pick record;
begin
    if penstock.is_paused('payments') then
        return;
    end if;
    loop
        v_pick := penstock_payments.pick_heads(v_after, v_limit, v_probes, p_rails, v_skip);
        exit when v_pick.ids <> '{}' or v_pick.more or v_after = '';
        v_after := '';
    end loop;
    v_pick.ids := penstock_payments.within_bounds(v_pick.ids);
    if v_pick.ids = '{}' then
        if v_pick.more then
            cursor_at := v_pick.last_participant;
            return next;
        end if;
        return;
    end if;
    return query
        select c.*, v_pick.last_participant
        from penstock_payments.claim_heads(v_pick.ids, p_owner) c;
end
$$;

comment on function
    public.claim_payment_outbox(integer, uuid, text, text[], text[], integer) is
    'Lease the next payment of up to p_limit participants, each under a token of its own.';
revoke all on function
    public.claim_payment_outbox(integer, uuid, text, text[], text[], integer) from public;
grant execute on function
    public.claim_payment_outbox(integer, uuid, text, text[], text[], integer)
    to penstock_payments_executor;
