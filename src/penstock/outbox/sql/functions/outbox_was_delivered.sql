-- An event that the only handler of its topic has handled has no route of its own and no deliveries.
create or replace function app.outbox_was_delivered(
    p_event uuid, p_delivered_at timestamptz, p_destination text
) returns boolean
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select exists (
        select from public.outbox_archive d
        join public.outbox_routes r on r.route = d.route and r.destination = p_destination
        where d.event_id = p_event and d.state = 'DELIVERED'
    ) or exists (
        select from public.outbox_archive a
        left join public.outbox_routes r on r.route = a.route
        where a.id = p_event and a.delivered_at = p_delivered_at and a.state = 'DELIVERED'
          and (r.destination = p_destination
               or (a.route is null and p_destination = 'python' and not exists (
                    select from public.outbox_archive d where d.event_id = p_event)))
    )
$$;

comment on function app.outbox_was_delivered(uuid, timestamptz, text) is
    'Whether an archived event has been delivered to a destination.';
revoke all on function app.outbox_was_delivered(uuid, timestamptz, text) from public;
