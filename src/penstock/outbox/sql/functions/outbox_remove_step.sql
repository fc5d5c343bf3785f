-- One piece of what a removed route leaves behind, one transaction: nobody would deliver it. That
-- includes what is in flight: its lease ends here, and what its worker has to say is kept as a late
-- result. A row that somebody holds is met again by the next step. If the route is there again, what is
-- left goes with it. Lock order: routes, then the removal, then events.
create or replace function app.outbox_remove_step(
    p_route text default null, p_limit integer default 1000
) returns table (cancelled integer, held boolean, ended boolean)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
    v_limit integer := least(greatest(coalesce(p_limit, 1000), 1), 10000);
    v_removal public.outbox_removals;
    v_wanted bigint[];
    v_to bigint;
begin
    lock table public.outbox_routes in share mode;
    select * into v_removal from public.outbox_removals r
    where p_route is null or r.route = p_route
    order by r.removed_at limit 1 for update skip locked;
    if not found then
        cancelled := 0;
        ended := not exists (select from public.outbox_removals r
                             where p_route is null or r.route = p_route);
        held := not ended;
        return next;
        return;
    end if;
    if exists (select from public.outbox_routes r where r.route = v_removal.route) then
        v_removal.upto := v_removal.position;
    end if;
    -- Up to twenty thousand numbers are looked at, so that a step stays short where few of them count.
    with looked as (
        select o.seq, o.route from public.outbox o
        where o.seq > v_removal.position and o.seq <= v_removal.upto
        order by o.seq limit 20000
    ), wanted as (
        select l.seq from looked l where l.route = v_removal.route order by l.seq limit v_limit
    )
    select array_agg(w.seq),
           case when count(*) = v_limit then max(w.seq)
                when (select count(*) from looked) = 20000 then (select max(l.seq) from looked l)
                else v_removal.upto end
    into v_wanted, v_to from wanted w;
    select c.cancelled, c.first_held is not null, coalesce(c.first_held - 1, v_to)
    into cancelled, held, v_to
    from app.outbox_cancel_deliveries(v_removal.route, coalesce(v_wanted, '{}')) c;
    v_removal.cancelled := v_removal.cancelled + cancelled;
    update public.outbox_removals r set position = v_to, cancelled = v_removal.cancelled
    where r.route = v_removal.route;
    if v_to >= v_removal.upto then
        delete from public.outbox_removals r where r.route = v_removal.route;
        perform audit.record('cancel', 'public.outbox_routes', jsonb_build_object(
            'route', v_removal.route, 'cancelled', v_removal.cancelled,
            'removal', v_removal.audit_id), v_removal.reason, v_removal.operator);
    end if;
    ended := not exists (select from public.outbox_removals r
                         where p_route is null or r.route = p_route);
    return next;
end
$$;

comment on function app.outbox_remove_step(text, integer) is
    'Cancel some of what removed routes leave: how many, if somebody holds one, if nothing is left.';
revoke all on function app.outbox_remove_step(text, integer) from public;
grant execute on function app.outbox_remove_step(text, integer)
    to penstock_control, penstock_outbox_executor;
