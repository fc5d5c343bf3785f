"""`penstock apply` and `penstock export`: policy rows as one declarative file."""

import importlib
import importlib.util
import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import click

from penstock.cli.invocation import Invocation, yes_option
from penstock.cli.values import format_duration, operator_name, parse_duration
from penstock.kernel import policy
from penstock.kernel.errors import BadSetting, ReasonRequired
from penstock.kernel.policy import Change, PolicyKind

_MODULES = (
    "penstock.kernel.policy",
    "penstock.outbox.policy",
    "penstock.intake.policy",
    "penstock.inbox.policy",
    "penstock.payments.policy",
)


def known_kinds() -> tuple[PolicyKind, ...]:
    """The kinds of the kernel and of every product that offers some."""
    kinds: list[PolicyKind] = []
    for name in _MODULES:
        if _exists(name):
            kinds.extend(importlib.import_module(name).KINDS)
    return tuple(kinds)


def _exists(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


@click.command()
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--dry-run", is_flag=True, help="Print the difference and stop; exit code 1 if any.")
@click.option("--reason", help="Why; goes into the audit log.")
@yes_option
@click.pass_obj
def apply(
    invocation: Invocation, *, file: Path, dry_run: bool, reason: str | None, yes: bool
) -> int:
    """Make policy rows what FILE says, in one transaction.

    FILE is TOML with sections such as [queue.outbox], [destination.acme], [route.acme],
    [source.stripe], [source_route."stripe/*"] and [rail.ach]. Rows and fields it does not name are
    left alone. Applying it twice changes nothing the second time.
    """
    out = invocation.out
    kinds = known_kinds()
    wanted = policy.check_document(_read(file, kinds), kinds)
    changes = invocation.run(_differences(invocation, wanted, kinds))
    if not changes:
        out.done("nothing to change", audit_id=None, changes=[])
        return 0
    out.plan(line for change in changes for line in change.lines())
    if dry_run:
        out.done("dry run: nothing was changed", audit_id=None, changes=_documents(changes))
        return 1
    if not (reason or "").strip():
        raise ReasonRequired("applying a policy needs a reason")
    out.confirm(f"Apply {len(changes)} changes?", yes=yes)
    audits = invocation.run(_write(invocation, changes, str(reason)))
    documents = _documents(changes)
    out.done(f"applied {len(changes)} changes", audit_id=audits[-1], changes=documents)
    return 0


@click.command()
@click.pass_obj
def export(invocation: Invocation) -> None:
    """Print the policy rows as a file that `penstock apply` reads."""
    kinds = known_kinds()

    async def read() -> dict[tuple[str, str], dict[str, Any]]:
        async with invocation.connection() as conn:
            return await policy.read_rows(conn, kinds)

    rows = invocation.run(read())
    if invocation.out.as_json:
        document: dict[str, dict[str, Any]] = {}
        for (kind, name), values in rows.items():
            document.setdefault(kind, {})[name] = values
        invocation.out.data(document)
        return
    click.echo("\n".join(_toml(rows, kinds)))


def _read(file: Path, kinds: Sequence[PolicyKind]) -> Mapping[str, Any]:
    try:
        document = tomllib.loads(file.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadSetting(f"{file} cannot be read: {error}") from error
    durations = {
        (kind.kind, field)
        for kind in kinds
        for field, what in kind.fields.items()
        if what == "duration"
    }
    return {
        section: _with_seconds(section, rows, durations) if isinstance(rows, dict) else rows
        for section, rows in document.items()
    }


def _with_seconds(
    section: str, rows: Mapping[str, Any], durations: set[tuple[str, str]]
) -> dict[str, Any]:
    """Durations are written as `7d`; from here on they are seconds."""
    converted: dict[str, Any] = {}
    for name, values in rows.items():
        if isinstance(values, dict):
            values = {
                field: _seconds(f"{section}.{name}.{field}", value)
                if (section, field) in durations
                else value
                for field, value in values.items()
            }
        converted[name] = values
    return converted


def _seconds(place: str, value: object) -> object:
    if not isinstance(value, str):
        raise BadSetting(f'{place} wants a duration such as "7d", not {value!r}')
    try:
        return parse_duration(value).total_seconds()
    except ValueError as error:
        raise BadSetting(f"{place}: {error}") from None


def _toml(
    rows: Mapping[tuple[str, str], Mapping[str, Any]], kinds: Sequence[PolicyKind]
) -> Iterator[str]:
    fields = {kind.kind: kind.fields for kind in kinds}
    for (kind, name), values in rows.items():
        yield f"[{kind}.{json.dumps(name)}]"
        for field, value in values.items():
            if value is None:
                continue
            written = format_duration(value) if fields[kind][field] == "duration" else value
            yield f"{field} = {_written(written)}"
        yield ""


def _written(value: object) -> str:
    """A value in TOML, whose texts, numbers, booleans and lists are JSON's."""
    if isinstance(value, dict):
        parts = (f"{json.dumps(key)} = {_written(each)}" for key, each in value.items())
        return "{" + ", ".join(parts) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_written(each) for each in value) + "]"
    return json.dumps(value, ensure_ascii=False)


def _documents(changes: Sequence[Change]) -> list[dict[str, Any]]:
    return [
        {
            "kind": change.kind.kind,
            "name": change.name,
            "before": change.before,
            "after": change.after,
        }
        for change in changes
    ]


async def _differences(
    invocation: Invocation, wanted: policy.Wanted, kinds: Sequence[PolicyKind]
) -> list[Change]:
    async with invocation.connection() as conn:
        present = await policy.read_rows(conn, kinds, derived=True)
    return policy.differences(wanted, present, kinds)


async def _write(invocation: Invocation, changes: Sequence[Change], reason: str) -> list[UUID]:
    async with invocation.transaction() as conn:
        return [
            await policy.write_change(conn, change, reason=reason, operator=operator_name())
            for change in changes
        ]
