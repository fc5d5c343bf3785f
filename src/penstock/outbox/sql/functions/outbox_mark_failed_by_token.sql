-- The counterpart of outbox_mark_delivered, for a client that knows its token and the ids of its events:
-- [{"id": …, "error": "…", "code": "…", "delay_s": 30, "verdict": "retry" | "reject" | "unknown"}, …].
-- Only the id is needed: without the others it is a retry, when the queue's own back-off says.
create or replace function app.outbox_mark_failed(p_token uuid, p_failures jsonb) returns integer
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
    v_told record;
begin
    if exists (select from jsonb_array_elements(p_failures) as f (told)
               where coalesce(f.told ->> 'verdict', 'retry') not in ('retry', 'reject', 'unknown')) then
        raise exception using
            errcode = 'PN005', message = 'a failure is told as retry, reject or unknown';
    end if;
    perform app.outbox_split_all(p_token);
    select coalesce(array_agg(t.seq), '{}') as seqs, array_agg(t.id) as ids,
           array_agg(coalesce(t.told ->> 'verdict', 'retry')) as verdicts,
           array_agg(coalesce((t.told ->> 'delay_s')::double precision,
                              app.outbox_backoff_s(t.attempts))) as delays_s,
           array_agg(coalesce(t.told ->> 'code', 'FAILED')) as codes,
           array_agg(t.told ->> 'error') as errors
    into v_told
    from (select distinct on (o.seq) o.seq, o.id, o.attempts, f.told
          from jsonb_array_elements(p_failures) as f (told)
          join public.outbox o on o.id = (f.told ->> 'id')::uuid
          where o.processing_token = p_token
          order by o.seq) t;
    return cardinality(v_told.seqs) - (
        select count(*)
        from app.outbox_mark_failed(
            v_told.seqs, v_told.ids, array_fill(p_token, array[cardinality(v_told.seqs)]),
            v_told.verdicts, v_told.delays_s, v_told.codes, v_told.errors));
end
$$;

comment on function app.outbox_mark_failed(uuid, jsonb) is
    'End attempts that did not deliver, by their ids; returns how many this token really ended.';
revoke all on function app.outbox_mark_failed(uuid, jsonb) from public;
grant execute on function app.outbox_mark_failed(uuid, jsonb) to penstock_outbox_executor;
