-- Deletes first and acts only on what was deleted: two workers past their lease cannot both write a
-- dead letter. Payload and count come from the row, never from the caller. The slot stays held.
create or replace function public.intake_reject(
    p_msg_ids bigint[], p_read_cts int[], p_codes text[] default null, p_errors text[] default null
) returns table (msg_id bigint, dead_id bigint)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    v_dead record;
    v_ids uuid[] := '{}';
    v_pools text[] := '{}';
    v_codes text[] := '{}';
    v_errors text[] := '{}';
begin
    for v_dead in
        with gone as (
            delete from pgmq.q_intake_queue q
            using unnest(p_msg_ids, p_read_cts, p_codes, p_errors)
                as a (msg_id, read_ct, code, error)
            where q.msg_id = a.msg_id and q.read_ct = a.read_ct
            returning q.msg_id, q.read_ct, q.message, q.headers, left(a.error, 2000) as error,
                      coalesce(left(a.code, 100), q.headers ->> 'error_code', 'MAX_RETRIES') as code
        )
        select g.* from gone g order by g.msg_id
    loop
        msg_id := v_dead.msg_id;
        dead_id := (select s from pgmq.send('intake_dlq',
            v_dead.message || jsonb_build_object('original_msg_id', v_dead.msg_id,
                'final_read_ct', v_dead.read_ct, 'routed_to_dlq_at', penstock.clock()),
            case when jsonb_typeof(v_dead.headers) = 'object'
                 then v_dead.headers - 'waiting' else '{}' end
                || jsonb_strip_nulls(jsonb_build_object(
                'error_code', v_dead.code, 'error', v_dead.error)),
            penstock.clock()) as s);
        -- As the dead letter will be listed: its original number is ours, not what the sender wrote.
        v_ids := v_ids || penstock_intake.dead_id(v_dead.msg_id, jsonb_build_object(
            'reservation_id', v_dead.message ->> 'reservation_id'));
        v_pools := v_pools || (v_dead.message ->> 'pool_id');
        v_codes := v_codes || v_dead.code;
        v_errors := v_errors || v_dead.error;
        return next;
    end loop;
    perform penstock.alert('intake', v_ids, v_pools, array_fill('DEAD'::text, array[cardinality(v_ids)]),
                           v_codes, v_errors);
end
$$;

comment on function public.intake_reject(bigint[], int[], text[], text[]) is
    'Move messages to intake_dlq where the lease is still held (read_ct unchanged).';
revoke all on function public.intake_reject(bigint[], int[], text[], text[]) from public;
grant execute on function public.intake_reject(bigint[], int[], text[], text[])
    to penstock_intake_executor;
