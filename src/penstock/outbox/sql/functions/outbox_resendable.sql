-- The next events of the archive that a resend looks at, in the order of their delivery, each with the
-- route to the destination; without one where none fits, where the same delivery is already on
-- its way, or, if only missing ones are wanted, where it has been made. The window must be chosen so
-- that it holds little more than the limit: the index over time only finds the neighbourhood.
create or replace function app.outbox_resendable(
    p_destination text, p_topic text, p_ids uuid[], p_missing boolean,
    p_from timestamptz, p_after bigint, p_to timestamptz, p_limit integer
) returns table (seq bigint, id uuid, topic text, delivered_at timestamptz, route text)
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
    v_ids uuid[];
    v_times timestamptz[];
begin
    select array_agg(k.id order by k.delivered_at, k.seq),
           array_agg(k.delivered_at order by k.delivered_at, k.seq)
    into v_ids, v_times
    from (select a.id, a.seq, a.delivered_at from public.outbox_archive a
          where p_ids is null
            and a.delivered_at >= p_from and a.delivered_at < p_to
            and (a.delivered_at > p_from or a.seq > p_after)
            and a.event_id is null and a.state in ('DELIVERED', 'NO_ROUTE')
            and (p_topic is null
                 or app.outbox_matches(p_topic, coalesce(a.event_topic, a.topic)))
          order by a.delivered_at, a.seq limit p_limit) k;
    if p_ids is not null then
        select array_agg(a.id), array_agg(a.delivered_at) into v_ids, v_times
        from public.outbox_archive a
        where a.id = any (p_ids)
          and a.event_id is null and a.state in ('DELIVERED', 'NO_ROUTE');
    end if;
    return query
        select a.seq, a.id, coalesce(a.event_topic, a.topic), a.delivered_at, way.route
        from unnest(v_ids, v_times) as k (id, at)
        join public.outbox_archive a on a.id = k.id and a.delivered_at = k.at
        left join lateral (
            select r.route from public.outbox_routes r
            where r.destination = p_destination and r.enabled
              and app.outbox_matches(r.topic, coalesce(a.event_topic, a.topic))
              and (r.filter is null or coalesce(a.payload @@ r.filter, false))
              and not exists (select from public.outbox o
                              where o.parent = a.seq and o.route = r.route)
              and not (p_missing and app.outbox_was_delivered(a.id, a.delivered_at, r.destination))
            order by r.route limit 1) way on true
        order by a.delivered_at, a.seq;
end
$$;

comment on function app.outbox_resendable(
    text, text, uuid[], boolean, timestamptz, bigint, timestamptz, integer) is
    'The next events of a resend, up to a time, with the route that each takes.';
revoke all on function app.outbox_resendable(
    text, text, uuid[], boolean, timestamptz, bigint, timestamptz, integer) from public;
