-- Calls the verb that the queue registered, with the caller's own rights; see penstock.replay.
create or replace function penstock.discard(
    p_queue text, p_ids uuid[], p_reason text, p_operator text default null
) returns table (id uuid, audit_id uuid)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    v_verb text;
begin
    select q.discard into v_verb from penstock.queue q where q.queue = p_queue;
    if v_verb is null then
        raise exception using errcode = 'PN011', message = format('there is no queue %L', p_queue);
    end if;
    return query execute format(
        'select r.id, r.audit_id from %I.%I(p_ids => $1, p_reason => $2, p_operator => $3) r',
        split_part(v_verb, '.', 1), split_part(v_verb, '.', 2))
    using p_ids, p_reason, p_operator;
end
$$;

comment on function penstock.discard(text, uuid[], text, text) is
    'Give up dead or held items of any queue; returns those that were, each with its audit row.';
revoke all on function penstock.discard(text, uuid[], text, text) from public;
grant execute on function penstock.discard(text, uuid[], text, text) to penstock_operator;
