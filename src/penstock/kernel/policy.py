"""Policy that is rows: which tables a policy file may set, field by field.

A product offers its own kinds as `KINDS` in its module `policy`; each names one SQL function that
reads and one that writes with an audit row, so that applying a file holds no SQL of its own.
"""

import difflib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

import asyncpg

from penstock.kernel.database import call
from penstock.kernel.errors import BadSetting, SchemaMissing
from penstock.kernel.queue import Connection

FieldKind = Literal["integer", "number", "flag", "text", "duration", "texts", "table"]
_TYPES: dict[FieldKind, tuple[type, ...]] = {
    "integer": (int,),
    "number": (int, float),
    "flag": (bool,),
    "text": (str,),
    "duration": (int, float),
    "texts": (list,),
    "table": (dict,),
}


@dataclass(frozen=True, slots=True)
class PolicyKind:
    """One section of a policy file, `[kind.NAME]`.

    `read` returns (name text, row_values text: a JSON object); durations are seconds. `write` takes
    (name, values as JSON, reason, operator) and returns audit_id. `complete` is given a row as it
    is to be and returns its `derived` fields, which no file names; raises BadSetting.
    """

    kind: str
    doc: str
    fields: Mapping[str, FieldKind]
    read: str
    write: str
    derived: tuple[str, ...] = ()
    complete: Callable[[str, Mapping[str, Any]], Mapping[str, Any]] | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """What applying a file would do to one row; `before` holds only the fields that differ."""

    kind: PolicyKind
    name: str
    before: Mapping[str, Any] | None
    after: Mapping[str, Any]

    def lines(self) -> Iterator[str]:
        """The change as a person reads it."""
        sign = "+" if self.before is None else "~"
        yield f"{sign} {self.kind.kind}.{self.name}"
        for field, value in self.after.items():
            old = "" if self.before is None else f"{self.before.get(field)!r} -> "
            yield f"    {field}: {old}{value!r}"


QUEUE = PolicyKind(
    kind="queue",
    doc="The numbers the workers of a queue run by.",
    fields={
        "lease_s": "integer",
        "max_attempts": "integer",
        "backoff_base_s": "number",
        "backoff_cap_s": "number",
        "poll_ms": "integer",
        "notify": "flag",
        "retention": "duration",
        "fairness": "text",
    },
    read="""
        select queue as name,
               (to_jsonb(c) - 'queue' || jsonb_build_object(
                   'retention', extract(epoch from c.retention)))::text as row_values
        from penstock.queue_config c order by queue
    """,
    write="select penstock.put_queue_config($1, $2::jsonb, $3, $4) as audit_id",
)
SCHEDULE = PolicyKind(
    kind="schedule",
    doc="How often a job runs, and whether.",
    fields={"every_s": "integer", "enabled": "flag"},
    read="""
        select job as name,
               jsonb_build_object('every_s', every_s, 'enabled', enabled)::text as row_values
        from penstock.schedule order by job
    """,
    write="select penstock.put_schedule($1, $2::jsonb, $3, $4) as audit_id",
)
KINDS: tuple[PolicyKind, ...] = (QUEUE, SCHEDULE)

Wanted = Mapping[tuple[str, str], Mapping[str, Any]]


def check_document(document: Mapping[str, Any], kinds: Sequence[PolicyKind]) -> Wanted:
    """The rows a parsed policy file asks for; raises BadSetting for what is not known."""
    by_name = {kind.kind: kind for kind in kinds}
    wanted: dict[tuple[str, str], Mapping[str, Any]] = {}
    for section, rows in document.items():
        kind = by_name.get(section)
        if kind is None:
            raise BadSetting(f"unknown section [{section}]{_near(section, by_name)}")
        if not isinstance(rows, Mapping):
            raise BadSetting(f"{section} wants sections such as [{section}.NAME]")
        for name, values in rows.items():
            if not isinstance(values, Mapping):
                raise BadSetting(f"{section}.{name} wants a section [{section}.{name}]")
            wanted[section, name] = {
                field: _checked(kind, f"{section}.{name}.{field}", field, value=value)
                for field, value in values.items()
            }
    return wanted


def _checked(kind: PolicyKind, place: str, field: str, *, value: Any) -> Any:
    field_kind = kind.fields.get(field)
    if field_kind is None:
        raise BadSetting(f"unknown field {place}{_near(field, kind.fields)}")
    fits = isinstance(value, _TYPES[field_kind])
    if field_kind == "texts" and fits:
        fits = all(isinstance(each, str) for each in value)
    if not fits or (isinstance(value, bool) and field_kind != "flag"):
        raise BadSetting(f"{place} wants a {field_kind}, not {value!r}")
    return value


def _near(name: str, known: Mapping[str, object]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"; did you mean {near[0]}?" if near else f"; there is {', '.join(known)}"


async def read_rows(
    conn: Connection, kinds: Sequence[PolicyKind], *, derived: bool = False
) -> dict[tuple[str, str], dict[str, Any]]:
    """Every policy row that is there now, on demand with what was derived for it."""
    rows = {}
    for kind in kinds:
        try:
            found = await call(conn, kind.read)
        except (asyncpg.UndefinedTableError, SchemaMissing):
            continue  # its product was left out of the migration
        for row in found:
            values = json.loads(row["row_values"])
            wanted = (*kind.fields, *kind.derived) if derived else kind.fields
            rows[kind.kind, row["name"]] = {field: values[field] for field in wanted}
    return rows


def differences(wanted: Wanted, present: Wanted, kinds: Sequence[PolicyKind]) -> list[Change]:
    """What must change so that every field the file names has its value; the rest is left alone."""
    by_name = {kind.kind: kind for kind in kinds}
    changes = []
    for (kind, name), values in wanted.items():
        now = present.get((kind, name))
        complete = by_name[kind].complete
        if complete is not None:
            values = {**values, **complete(name, {**(now or {}), **values})}
        after = {
            field: value for field, value in values.items() if now is None or now[field] != value
        }
        if after or now is None:
            before = None if now is None else {field: now[field] for field in after}
            changes.append(Change(by_name[kind], name, before, after))
    # In the order of the kinds: what a row refers to is written before it.
    return sorted(changes, key=lambda change: kinds.index(change.kind))


async def write_change(conn: Connection, change: Change, *, reason: str, operator: str) -> UUID:
    """Write one row; returns the audit id."""
    values = {
        field: f"{value} seconds" if change.kind.fields.get(field) == "duration" else value
        for field, value in change.after.items()
    }
    try:
        rows = await call(
            conn, change.kind.write, change.name, json.dumps(values), reason, operator
        )
    except (asyncpg.IntegrityConstraintViolationError, asyncpg.DataError) as error:
        # The bounds of a value stand in the table alone, so its refusal is the message.
        raise BadSetting(
            f"{change.kind.kind}.{change.name}: {error}",
            happened="the table refuses a value; nothing of the file was applied.",
        ) from error
    return UUID(str(rows[0]["audit_id"]))
