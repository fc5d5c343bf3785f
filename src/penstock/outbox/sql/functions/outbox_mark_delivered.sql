-- The seed's way to finish. Its caller has published already, so an event whose lease this token held
-- and lost is kept as a late result; a token that never held it is only a wrong token.
create or replace function app.outbox_mark_delivered(p_token uuid, p_ids uuid[]) returns integer
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
    v_seqs bigint[];
    v_ids uuid[];
begin
    perform app.outbox_split_all(p_token);
    select coalesce(array_agg(o.seq), '{}'), coalesce(array_agg(o.id), '{}') into v_seqs, v_ids
    from public.outbox o
    where o.id = any (p_ids)
      and (o.processing_token = p_token or exists (
            select from public.outbox_attempts a
            where a.event_id = o.id and a.lease_token = p_token));
    return cardinality(v_seqs) - (
        select count(*)
        from app.outbox_finish(v_seqs, v_ids, array_fill(p_token, array[cardinality(v_seqs)])));
end
$$;

comment on function app.outbox_mark_delivered(uuid, uuid[]) is
    'Finish events by their ids; returns how many this token really finished.';
revoke all on function app.outbox_mark_delivered(uuid, uuid[]) from public;
grant execute on function app.outbox_mark_delivered(uuid, uuid[]) to penstock_outbox_executor;
