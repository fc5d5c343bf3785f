-- One step, one transaction: the deliveries and the place up to which they go are written together, so
-- that a step is done wholly or not at all, and never twice. Lock order: routes, as where events are
-- given theirs, then the resend; two who do the same one take turns.
-- While the destination is far behind, nothing is added: the hot table stays small. Nor is anything while
-- a transaction is open that wrote to the archive before the resend began: it may commit older rows.
create or replace function app.outbox_resend_step(
    p_resend uuid, p_limit integer default 500, p_waiting_max integer default 5000
) returns table (seen integer, sent integer, at timestamptz, ended boolean, waiting integer)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    v_limit integer := least(greatest(coalesce(p_limit, 500), 1), 1000);
    v_resend public.outbox_resends;
    v_window interval;
    v_to timestamptz;
    v_routes text[];
    v_last record;
begin
    lock table public.outbox_routes in share mode;
    select * into v_resend from public.outbox_resends r where r.id = p_resend for update;
    if not found then
        raise exception using errcode = 'PN011', message = format('there is no resend %s', p_resend);
    end if;
    seen := 0; sent := 0; at := v_resend.position_at; ended := v_resend.ended_at is not null;
    v_routes := array(select r.route from public.outbox_routes r
                      where r.destination = v_resend.destination);
    waiting := (select count(*) from (
            select from public.outbox o
            where o.topic = any (v_routes) and o.pos is not null and o.route is not null
            limit 10000) ready)
        + (select count(*) from (
            select from public.outbox o
            where o.topic = any (v_routes) and o.next_attempt_at = '9999-12-31 00:00:00+00'
            limit 10000) aside);
    if v_resend.unsettled && app.outbox_archiving() then
        waiting := greatest(waiting, p_waiting_max);
    end if;
    if not ended and waiting < p_waiting_max then
        v_window := v_resend.step;
        if v_resend.event_ids is null then
            v_window := app.outbox_resend_window(
                v_resend.position_at, v_resend.until_at, v_window, v_limit);
        end if;
        v_to := least(v_resend.position_at + v_window, v_resend.until_at);
        with next as materialized (
            select n.* from app.outbox_resendable(
                v_resend.destination, v_resend.topic, v_resend.event_ids, v_resend.missing,
                v_resend.position_at, v_resend.position_seq, v_to, v_limit) n
        ), made as (
            insert into public.outbox
                (tenant_id, topic, payload, headers, created_at, ordering_key, route, event_id,
                 event_topic, parent)
            select a.tenant_id, n.route, a.payload,
                   a.headers || jsonb_build_object('penstock-resend', p_resend), a.created_at,
                   a.ordering_key, n.route, a.id, n.topic, a.seq
            from next n
            join public.outbox_archive a on a.id = n.id and a.delivered_at = n.delivered_at
            where n.route is not null
            order by n.delivered_at, n.seq
            returning seq
        )
        select (select count(*) from next) as seen, (select count(*) from made) as sent,
               x.delivered_at, x.seq into v_last
        from (select 1) one
        left join (select n.delivered_at, n.seq from next n
                   order by n.delivered_at desc, n.seq desc limit 1) x on true;
        seen := v_last.seen; sent := v_last.sent;
        ended := v_resend.event_ids is not null or (seen < v_limit and v_to >= v_resend.until_at);
        at := case when ended then v_resend.until_at when seen < v_limit then v_to
                   else v_last.delivered_at end;
        update public.outbox_resends r
        set position_at = at,
            position_seq = case when v_last.seen < v_limit then 0 else v_last.seq end,
            step = v_window, seen = r.seen + v_last.seen, sent = r.sent + v_last.sent,
            ended_at = case when ended then penstock.clock() end
        where r.id = p_resend;
    end if;
    return next;
end
$$;

comment on function app.outbox_resend_step(uuid, integer, integer) is
    'Send the next events of a resend; says how many, how far it is, and what waits to be delivered.';
revoke all on function app.outbox_resend_step(uuid, integer, integer) from public;
grant execute on function app.outbox_resend_step(uuid, integer, integer) to penstock_operator;
