-- The row lock lasts until the caller commits: enqueue last in the transaction. The seed names the
-- first parameter.
create or replace function public.bump_participant_outbox_seq(
    participant_id text, p_count integer default 1
) returns bigint
language sql security definer
set search_path = pg_catalog, pg_temp
as $$
    insert into public.participant_outbox_sequences as s (participant_id, next_sequence_id)
    values (bump_participant_outbox_seq.participant_id, 1 + greatest(p_count, 1))
    on conflict (participant_id) do update
        set next_sequence_id = s.next_sequence_id + greatest(p_count, 1)
    returning s.next_sequence_id - greatest(p_count, 1)
$$;

comment on function public.bump_participant_outbox_seq(text, integer) is
    'Take the next sequence numbers of a participant; returns the first of them.';
revoke all on function public.bump_participant_outbox_seq(text, integer) from public;
