"""Rails in a policy file: `[rail.NAME]`."""

from collections.abc import Mapping
from typing import Any

from penstock.kernel.policy import PolicyKind


def _completed(name: str, row: Mapping[str, Any]) -> Mapping[str, Any]:
    """A rail recognises our key exactly if it is said for how long."""
    del name
    return {"idempotent": row.get("idempotency_window") is not None}


RAIL = PolicyKind(
    kind="rail",
    doc="What a rail does with our key, its limits, and what its codes mean.",
    fields={
        "idempotency_window": "duration",
        "timeout_ms": "integer",
        "max_concurrency": "integer",
        "status_query": "flag",
        "on_failed": "text",
        "destination_keys": "texts",
        "codes": "table",
    },
    derived=("idempotent",),
    complete=_completed,
    read="""
        select r.rail_type as name,
               (to_jsonb(r) - 'rail_type' || jsonb_build_object(
                   'idempotency_window', extract(epoch from r.idempotency_window),
                   'codes', (select coalesce(jsonb_object_agg(c.code, c.class), '{}')
                             from public.payment_rail_codes c
                             where c.rail_type = r.rail_type)))::text as row_values
        from public.payment_rails r order by r.rail_type
    """,
    write="select public.put_payment_rail($1, $2::jsonb, $3, $4) as audit_id",
)
KINDS: tuple[PolicyKind, ...] = (RAIL,)
