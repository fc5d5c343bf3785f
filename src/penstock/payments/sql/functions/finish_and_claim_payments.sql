-- A participant's next payment waits only for the end of the one before, so both go into one commit.
-- Rows with an ended_id say what became of what was finished, as finish_payment_attempts does; the
-- others are claims, as of claim_payment_outbox. Claims nothing for anybody else: for that, go round.
create or replace function public.finish_and_claim_payments(
    p_outbox_ids      uuid[],
    p_tokens          uuid[],
    p_states          text[],
    p_delays_s        double precision[],
    p_rail_references text[],
    p_rail_codes      text[],
    p_error_codes     text[],
    p_error_messages  text[],
    p_latencies_ms    integer[],
    p_participants    text[],
    p_owner           uuid,
    p_rails           text[] default null,
    p_skip            text[] default '{}'
) returns table (
    ended_id uuid, ended_state text,
    outbox_id uuid, instruction_id text, participant_id text, sequence_id bigint,
    idempotency_key text, rail_type text, payload jsonb, headers jsonb, created_at timestamptz,
    attempt_no integer, attempt integer, max_attempts integer, claimed_at timestamptz,
    lease_token uuid, lease_epoch bigint, lease_expires_at timestamptz, lease_s integer,
    first_sent_at timestamptz
)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    v_ids uuid[];
begin
    for ended_id, ended_state in
        select f.outbox_id, f.state
        from public.finish_payment_attempts(
            p_outbox_ids, p_tokens, p_states, p_delays_s, p_rail_references, p_rail_codes,
            p_error_codes, p_error_messages, p_latencies_ms) f
    loop
        return next;
    end loop;
    v_ids := penstock_payments.next_heads(p_participants, p_rails, p_skip);
    if v_ids <> '{}' then
        return query
            select null::uuid, null::text, c.*
            from penstock_payments.claim_heads(v_ids, p_owner) c;
    end if;
end
$$;

comment on function public.finish_and_claim_payments(uuid[], uuid[], text[], double precision[],
    text[], text[], text[], text[], integer[], text[], uuid, text[], text[]) is
    'Record how dispatches ended and lease the next payment of their participants, in one commit.';
revoke all on function public.finish_and_claim_payments(uuid[], uuid[], text[], double precision[],
    text[], text[], text[], text[], integer[], text[], uuid, text[], text[]) from public;
grant execute on function public.finish_and_claim_payments(uuid[], uuid[], text[],
    double precision[], text[], text[], text[], text[], integer[], text[], uuid, text[], text[])
    to penstock_payments_executor;
