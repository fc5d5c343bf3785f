-- Only the route goes here: to lock the routes keeps every claim waiting, and a million deliveries take a
-- while to cancel. outbox_remove_step does that, piece by piece, and can go on after any end. The lock
-- waits for whoever still gives events this route; what they gave it is numbered up to here.
create or replace function app.outbox_remove_route(
    p_route text, p_reason text, p_operator text default null
) returns uuid
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_audit_id uuid;
begin
    perform app.outbox_lock_routes();
    delete from public.outbox_routes r where r.route = p_route;
    if not found then
        raise exception using errcode = 'PN011', message = format('there is no route %L', p_route);
    end if;
    v_audit_id := audit.record('remove', 'public.outbox_routes',
        jsonb_build_object('route', p_route), p_reason, p_operator);
    insert into public.outbox_removals (route, upto, audit_id, reason, operator)
    values (p_route, coalesce(pg_sequence_last_value('public.outbox_seq_seq'), 0), v_audit_id,
            p_reason, p_operator)
    on conflict (route) do update
        set upto = excluded.upto, position = 0, audit_id = excluded.audit_id,
            reason = excluded.reason, operator = excluded.operator;
    return v_audit_id;
end
$$;

comment on function app.outbox_remove_route(text, text, text) is
    'Take a route away; what is on its way there is cancelled by app.outbox_remove_step; audited.';
revoke all on function app.outbox_remove_route(text, text, text) from public;
grant execute on function app.outbox_remove_route(text, text, text) to penstock_control;
