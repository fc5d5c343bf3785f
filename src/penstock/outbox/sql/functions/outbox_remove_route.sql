-- What already goes this way is cancelled with it: nobody would deliver it. That includes what is in
-- flight: its lease ends here, and what its worker has to say about it is kept as a late result.
-- The lock waits for the claims that still see the route; lock order: routes, then events.
create or replace function app.outbox_remove_route(
    p_route text, p_reason text, p_operator text default null
) returns uuid
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_seqs bigint[];
begin
    perform app.outbox_lock_routes();
    delete from public.outbox_routes r where r.route = p_route;
    if not found then
        raise exception using errcode = 'PN011', message = format('there is no route %L', p_route);
    end if;
    with leased as (
        select o.seq, o.processing_token as token from public.outbox o
        where o.route = p_route and o.processing_token is not null
        order by o.seq
        for update
    ), cut as (
        update public.outbox o
        set processing_token = null, lease_owner = null, lease_expires_at = null,
            next_attempt_at = penstock.clock()
        from leased l
        where o.seq = l.seq
        returning o.seq, o.id, l.token, o.lease_epoch
    )
    insert into public.outbox_attempts
        (seq, event_id, lease_token, lease_epoch, outcome, error_code)
    select c.seq, c.id, c.token, c.lease_epoch, 'RELEASED', 'ROUTE_REMOVED' from cut c;
    v_seqs := array(
        select o.seq from public.outbox o
        where o.route = p_route and o.processing_token is null
        order by o.turn desc nulls last, o.seq
        for update);
    if cardinality(v_seqs) > 0 then
        perform app.outbox_archive_rows(v_seqs, null, 'CANCELLED');
    end if;
    return audit.record('remove', 'public.outbox_routes',
        jsonb_build_object('route', p_route, 'cancelled', cardinality(v_seqs)),
        p_reason, p_operator);
end
$$;

comment on function app.outbox_remove_route(text, text, text) is
    'Take a route away and cancel what is on its way there; audited.';
revoke all on function app.outbox_remove_route(text, text, text) from public;
grant execute on function app.outbox_remove_route(text, text, text) to penstock_control;
