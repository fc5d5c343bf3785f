create or replace function app.outbox_mark_delivered(p_token uuid, p_ids uuid[]) returns integer
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
declare
    v_seqs bigint[];
    v_ids uuid[];
    v_refused integer;
begin
    select array_agg(o.seq), array_agg(o.id) into v_seqs, v_ids
    from public.outbox o
    where o.id = any (p_ids) and o.processing_token = p_token;
    if v_seqs is null then
        return 0;
    end if;
    select count(*) into v_refused
    from app.outbox_finish(v_seqs, v_ids, array_fill(p_token, array[cardinality(v_seqs)]));
    return cardinality(v_seqs) - v_refused;
end
$$;

comment on function app.outbox_mark_delivered(uuid, uuid[]) is
    'Finish events by their ids; returns how many this token really finished.';
revoke all on function app.outbox_mark_delivered(uuid, uuid[]) from public;
grant execute on function app.outbox_mark_delivered(uuid, uuid[]) to penstock_outbox_executor;
