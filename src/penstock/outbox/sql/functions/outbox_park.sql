create or replace function app.outbox_park(
    p_keys text[], p_reason text, p_operator text default null, p_tenant uuid default null,
    p_route text default null
) returns table (ordering_key text, id uuid, audit_id uuid)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    v_now timestamptz := penstock.clock();
    v_head record;
begin
    for v_head in select * from app.outbox_take_heads(p_keys, p_tenant, p_route) loop
        update public.outbox o
        set parked_at = v_now,
            dead_at = case when o.held_at is null then coalesce(o.dead_at, v_now) end,
            error_code = case when num_nonnulls(o.dead_at, o.held_at) = 0
                then 'PARKED' else o.error_code end,
            pos = null, next_attempt_at = null
        where o.seq = v_head.seq;
        perform app.outbox_promote(array[v_head.key_hash], array[v_head.seq]);
        ordering_key := v_head.ordering_key;
        id := v_head.id;
        audit_id := audit.record('park', 'public.outbox',
            jsonb_build_object('id', v_head.id, 'ordering_key', v_head.ordering_key),
            p_reason, p_operator);
        return next;
    end loop;
end
$$;

comment on function app.outbox_park(text[], text, text, uuid, text) is
    'Set the heads of blocked keys aside as dead letters and let the next go; audited.';
revoke all on function app.outbox_park(text[], text, text, uuid, text) from public;
grant execute on function app.outbox_park(text[], text, text, uuid, text) to penstock_operator;
