"""`penstock source`: the senders of webhooks; and `penstock tail`, events as they come."""

import asyncio
import importlib
import json
import os
import secrets
import time
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any
from uuid import UUID

import click

from penstock.cli.invocation import Invocation, reason_option, yes_option
from penstock.cli.output import Column, plain
from penstock.cli.pause import pause as pause_command
from penstock.cli.rotating import check_references, rotate_command
from penstock.cli.source_route import route
from penstock.cli.values import operator_name, parse_pairs
from penstock.inbox import store
from penstock.inbox.model import Source
from penstock.inbox.providers import PROVIDERS
from penstock.inbox.sources import scheme_of, sender_of
from penstock.kernel.database import PooledConnection, call
from penstock.kernel.errors import BadSetting, NotFound
from penstock.kernel.references import follow

_TAIL = (
    "select seq, received_at, source, event_type, event_id, state, total_attempts, error_code"
    " from webhook.inbox_recent($1::bigint, $2::text, $3::integer)"
)
TAIL_POLL_S = 0.5


@click.group()
def source() -> None:
    """Add, rotate, pause and try sources of webhooks."""


source.add_command(route)


@source.command("list")
@click.pass_obj
def list_sources(invocation: Invocation) -> None:
    """List the configured sources; secrets only as references."""

    async def read() -> list[Source]:
        async with invocation.connection() as conn:
            return await store.sources(conn)

    columns: list[str | Column] = ["source", "provider", "enabled", "secret_refs"]
    columns += [Column("tolerance_s", right=True), Column("max_body", right=True)]
    columns += ["unhandled", "id"]
    found = invocation.run(read())
    rows = [{**plain(one), "secret_refs": ", ".join(one.secret_refs)} for one in found]
    invocation.out.table(columns, rows, empty="no source is configured")


@source.command()
@click.argument("name")
@click.option("--provider", "scheme", required=True, type=click.Choice(sorted(PROVIDERS)))
@click.option("--secret", "references", multiple=True, help="env:NAME or file:PATH; repeatable.")
@click.option("--tolerance-s", type=click.IntRange(1, 86_400))
@click.option("--max-body", type=click.IntRange(1, 16 * 1024 * 1024), help="Bytes.")
@click.option("--max-backlog", type=click.IntRange(1), help="Events that may wait.")
@click.option("--public-url", help="As the sender knows it; Twilio signs it.")
@click.option("--ignore-unhandled", is_flag=True, help="Events without a handler count as done.")
@click.option("--option", "options", multiple=True, metavar="NAME=JSON", help="Of the scheme.")
@reason_option
@yes_option
@click.pass_obj
def add(
    invocation: Invocation,
    /,
    *,
    name: str,
    scheme: str,
    references: tuple[str, ...],
    ignore_unhandled: bool,
    options: tuple[str, ...],
    reason: str,
    yes: bool,
    **limits: Any,
) -> None:
    """Add a source, or replace the settings of the one of that NAME."""
    check_references(references)
    own = parse_pairs(options)
    checked = scheme_of(scheme, own, limits["public_url"])
    settings = {
        **{key: value for key, value in limits.items() if value is not None},
        "timestamp_signed": checked.timestamped,
        "unhandled": "ignore" if ignore_unhandled else "keep",
        "options": own,
    }
    out = invocation.out
    out.plan([f"source {name}: {scheme}, POST /webhooks/{name}", f"  {json.dumps(settings)}"])
    out.confirm(f"Write source {name}?", yes=yes)

    async def act() -> tuple[UUID, UUID]:
        async with invocation.transaction() as conn:
            return await store.put_source(
                conn, name, scheme, list(references), json.dumps(settings), reason, operator_name()
            )

    source_id, audit_id = invocation.run(act())
    out.done(f"source {name} is {source_id}", audit_id=audit_id, id=source_id, source=name)


async def _rotate(conn: PooledConnection, name: str, reference: str | None, *, reason: str) -> UUID:
    return await store.rotate_source(conn, name, reference, reason, operator_name())


source.add_command(rotate_command("source", "verify", _rotate))


@source.command()
@click.argument("name")
@reason_option
@yes_option
@click.pass_context
def pause(context: click.Context, *, name: str, reason: str, yes: bool) -> None:
    """Stop handling events of a source; they are still received. `penstock resume source/NAME`."""
    context.invoke(pause_command, target=f"source/{name}", reason=reason, lasting=None, yes=yes)


@source.command("send-test")
@click.argument("name")
@click.option("--url", required=True, help="Where the inbox is, such as http://host/webhooks/NAME.")
@click.option("--type", "event_type", default="", help="The type of the sample event.")
@click.option("--event-id", default="", help="Its id; a fresh one without it.")
@click.pass_obj
def send_test(
    invocation: Invocation, *, name: str, url: str, event_type: str, event_id: str
) -> int:
    """Sign a sample as the provider would, and send it."""
    sample_id = event_id or f"evt_test_{secrets.token_hex(8)}"
    status = invocation.run(_send_test(invocation, name, url=url, kind=event_type, id_=sample_id))
    invocation.out.data({"source": name, "event_id": sample_id, "status": status})
    return 0 if 200 <= status < 300 else 1


async def _send_test(invocation: Invocation, name: str, *, url: str, kind: str, id_: str) -> int:
    outgoing = importlib.import_module("penstock.kernel.outgoing")
    async with invocation.connection() as conn:
        found = next((s for s in await store.sources(conn) if s.source == name), None)
    if found is None:
        raise NotFound(f"there is no source {name}", todo="`penstock source list` shows them.")
    scheme = sender_of(found, os.environ).provider
    try:
        secret = follow(found.secret_refs[0], os.environ)
    except (ValueError, IndexError) as error:
        raise BadSetting(f"the secret of {name} {error}") from None
    body = scheme.sample(id_, kind)
    headers = scheme.sign(secret, body, at_s=int(time.time()), event_type=kind)
    client = outgoing.Outgoing.from_settings(invocation.settings)
    try:
        reply = await client.post(
            url, body, message_id=id_, headers={"content-type": "application/json", **headers}
        )
    finally:
        await client.close()
    status: int = reply.status
    return status


@click.command()
@click.argument("queue", default="inbox", type=click.Choice(["inbox"]))
@click.option("--source", "name", help="Only events of this source.")
@click.option("--last", type=click.IntRange(0, 1000), default=10, show_default=True)
@click.option("--follow/--no-follow", default=True, help="Go on as events come.")
@click.pass_obj
def tail(invocation: Invocation, *, queue: str, name: str | None, last: int, follow: bool) -> None:
    """Show events as they are received, until interrupted; never their payloads."""
    del queue

    async def show() -> None:
        async for row in _events(invocation, name, last=last, follow=follow):
            if invocation.out.as_json:
                click.echo(json.dumps(plain(row)))
            else:
                click.echo(_line(row))

    invocation.run(show())


def _line(row: dict[str, Any]) -> str:
    at: datetime = row["received_at"]
    code = f"  {row['error_code']}" if row["error_code"] else ""
    return (
        f"{at:%H:%M:%S}  {row['source'] or '-'}  {row['event_type'] or '-'}  {row['event_id']}"
        f"  {row['state']}  attempts {row['total_attempts']}{code}"
    )


async def _events(
    invocation: Invocation, name: str | None, *, last: int, follow: bool
) -> AsyncIterator[dict[str, Any]]:
    after: int | None = None
    database = invocation.database()
    await database.open()
    try:
        while True:
            async with database.connection() as conn:
                rows = await call(conn, _TAIL, after, name, last if after is None else 1000)
            for row in rows:
                after = max(after or 0, row["seq"])
                yield dict(row)
            after = after or 0
            if not follow:
                return
            await asyncio.sleep(TAIL_POLL_S)
    finally:
        await database.close()
