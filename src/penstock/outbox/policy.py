"""Destinations and routes in a policy file: `[destination.NAME]` and `[route.NAME]`."""

from penstock.kernel.policy import PolicyKind

DESTINATION = PolicyKind(
    kind="destination",
    doc="Where events go: a sink and its settings; secrets by reference.",
    fields={
        "kind": "text",
        "config": "table",
        "secret_refs": "texts",
        "concurrency": "integer",
        "rate_per_s": "number",
        "enabled": "flag",
        "breaker_after": "integer",
        "breaker_pause_s": "number",
    },
    read="""
        select name, (to_jsonb(d) - 'name')::text as row_values
        from public.outbox_destinations d where kind <> 'python' order by name
    """,
    write="""
        select app.outbox_put_destination($1, $2::jsonb ->> 'kind', $2::jsonb, $3, $4) as audit_id
    """,
)
ROUTE = PolicyKind(
    kind="route",
    doc="Which events go to which destination.",
    fields={"topic": "text", "destination": "text", "filter": "text", "enabled": "flag"},
    read="""
        select r.route as name,
               jsonb_build_object('topic', r.topic, 'destination', r.destination,
                   'filter', coalesce(r.filter_text, r.filter::text),
                   'enabled', r.enabled)::text as row_values
        from public.outbox_routes r
        join public.outbox_destinations d on d.name = r.destination
        where d.kind <> 'python' order by r.route
    """,
    write="select app.outbox_set_route($1, $2::jsonb, $3, $4) as audit_id",
)
KINDS: tuple[PolicyKind, ...] = (DESTINATION, ROUTE)
