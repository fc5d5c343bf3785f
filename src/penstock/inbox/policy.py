"""Sources and their routes in a policy file: `[source.NAME]`, `[source_route."SOURCE/PATTERN"]`."""

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.inbox.sources import scheme_of
from penstock.kernel.errors import BadSetting, NotFound
from penstock.kernel.policy import PolicyKind
from penstock.kernel.references import is_reference


def _completed(name: str, row: Mapping[str, Any]) -> Mapping[str, Any]:
    """What follows from the scheme: without a signed time, events are remembered for ever."""
    _check_references(f"source.{name}", row.get("secret_refs") or [])
    if row.get("provider") is None:
        return {}  # the function that writes it says what is missing
    try:
        scheme = scheme_of(row["provider"], row.get("options") or {}, row.get("public_url"))
    except (BadSetting, NotFound) as error:
        raise BadSetting(f"source.{name}: {error.what}") from None
    return {"timestamp_signed": scheme.timestamped}


def _checked(name: str, row: Mapping[str, Any]) -> Mapping[str, Any]:
    reference = row.get("secret_ref")
    _check_references(f"source_route.{name}", [reference] if reference else [])
    return {}


def _check_references(place: str, references: Sequence[str]) -> None:
    """Before anything is printed: what is written down by mistake is not repeated."""
    if not all(is_reference(one) for one in references):
        raise BadSetting(
            f"{place}: a secret is named by env:NAME or file:PATH, never written down",
            todo="put the secret into a variable or a file and name that.",
        )


SOURCE = PolicyKind(
    kind="source",
    doc="Who sends webhooks, and what verifies them; secrets by reference.",
    fields={
        "provider": "text",
        "secret_refs": "texts",
        "tolerance_s": "integer",
        "max_body": "integer",
        "max_backlog": "integer",
        "public_url": "text",
        "unhandled": "text",
        "options": "table",
        "enabled": "flag",
    },
    derived=("timestamp_signed",),
    complete=_completed,
    read="""
        select source as name, (to_jsonb(w) - 'source')::text as row_values
        from public.webhook_endpoints w order by source
    """,
    write="select webhook.set_source($1, $2::jsonb, $3, $4) as audit_id",
)
ROUTE = PolicyKind(
    kind="source_route",
    doc="Where events of a source go that no handler takes.",
    fields={"kind": "text", "target": "text", "secret_ref": "text", "enabled": "flag"},
    complete=_checked,
    read="""
        select source || '/' || pattern as name, to_jsonb(r)::text as row_values
        from public.webhook_routes r order by source, pattern
    """,
    write="select webhook.set_route($1, $2::jsonb, $3, $4) as audit_id",
)
KINDS: tuple[PolicyKind, ...] = (SOURCE, ROUTE)
