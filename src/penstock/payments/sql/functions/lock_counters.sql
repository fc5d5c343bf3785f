-- Whoever enqueues for a participant waits here for the others who do, so a key that was new before may
-- be known after. In order of the name: batches cannot deadlock each other. A row lock and not one
-- per key in the server's lock table: twenty thousand payments in one transaction would fill that for
-- everybody.
create or replace function penstock_payments.lock_counters(p_participants text[]) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
declare
    v_participant text;
begin
    foreach v_participant in array p_participants loop
        perform from public.participant_outbox_sequences s
        where s.participant_id = v_participant for update;
        if not found then
            insert into public.participant_outbox_sequences (participant_id, next_sequence_id)
            values (v_participant, 1) on conflict (participant_id) do nothing;
            if not found then
                perform from public.participant_outbox_sequences s
                where s.participant_id = v_participant for update;
            end if;
        end if;
    end loop;
end
$$;

comment on function penstock_payments.lock_counters(text[]) is
    'Wait for others that enqueue for these participants; held until the transaction ends.';
revoke all on function penstock_payments.lock_counters(text[]) from public;
