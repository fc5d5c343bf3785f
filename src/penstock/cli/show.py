"""`penstock show ID`: the story of one item of any queue."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import click

from penstock.cli.invocation import Invocation
from penstock.cli.output import Output
from penstock.cli.values import operator_name, parse_id
from penstock.kernel import operations
from penstock.kernel.errors import ReasonRequired


@click.command()
@click.argument("item_id", metavar="ID")
@click.option("--payload", is_flag=True, help="Also the payload; needs --reason, is audited.")
@click.option("--reason", help="Why the payload is read; goes into the audit log.")
@click.pass_obj
def show(invocation: Invocation, item_id: str, payload: bool, *, reason: str | None) -> None:
    """Show what happened to one item: state, attempts, headers."""
    if payload and not (reason or "").strip():
        raise ReasonRequired("reading a payload needs a reason")
    told = invocation.run(_read(invocation, parse_id(item_id), reason if payload else None))
    print_story(invocation.out, told)


async def _read(invocation: Invocation, item: UUID, reason: str | None) -> dict[str, Any]:
    async with invocation.transaction() as conn:
        return await operations.story(conn, item, payload_reason=reason, operator=operator_name())


def print_story(out: Output, told: Mapping[str, Any]) -> None:
    """Print the plain facts first, then every list as a table of its own."""
    if out.as_json:
        out.data(told)
        return
    out.record(
        {
            key: value
            for key, value in told.items()
            if value is not None and not isinstance(value, list)
        }
    )
    for key, value in told.items():
        if isinstance(value, list) and value:
            out.say(f"\n{key.replace('_', ' ')}")
            out.table(_columns(value), value)


def _columns(rows: Sequence[Mapping[str, object]]) -> list[str]:
    return list(dict.fromkeys(key for row in rows for key in row))
