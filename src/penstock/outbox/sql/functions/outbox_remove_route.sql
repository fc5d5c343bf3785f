-- What already goes this way and is not in flight is cancelled with it: nobody would deliver it.
create or replace function app.outbox_remove_route(
    p_route text, p_reason text, p_operator text default null
) returns uuid
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_seqs bigint[];
begin
    delete from public.outbox_routes r where r.route = p_route;
    if not found then
        raise exception using errcode = 'PN011', message = format('there is no route %L', p_route);
    end if;
    v_seqs := array(
        select o.seq from public.outbox o
        where o.route = p_route and o.processing_token is null
        order by o.turn desc nulls last, o.seq
        for update skip locked);
    if cardinality(v_seqs) > 0 then
        perform app.outbox_archive_rows(v_seqs, null, 'CANCELLED');
    end if;
    return audit.record('remove', 'public.outbox_routes',
        jsonb_build_object('route', p_route, 'cancelled', cardinality(v_seqs)),
        p_reason, p_operator);
end
$$;

comment on function app.outbox_remove_route(text, text, text) is
    'Take a route away and cancel what waits on it; audited.';
revoke all on function app.outbox_remove_route(text, text, text) from public;
grant execute on function app.outbox_remove_route(text, text, text) to penstock_control;
