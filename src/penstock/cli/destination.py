"""`penstock destination`: where events go, in which state that is, and a way to try it."""

import asyncio
import json
import time
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any
from uuid import UUID

import click
import msgspec

from penstock.cli.invocation import Invocation, reason_option, warn_of_secrets, yes_option
from penstock.cli.output import Column
from penstock.cli.rotating import check_references, rotate_command
from penstock.cli.values import operator_name, parse_pairs
from penstock.kernel.database import PooledConnection
from penstock.kernel.errors import MissingExtra, NotFound, WrongUsage
from penstock.kernel.finisher import verdict_name
from penstock.kernel.ids import uuid7
from penstock.kernel.verdict import Done, Verdict
from penstock.outbox import destinations
from penstock.outbox.destinations import DestinationStats, Row
from penstock.outbox.envelope import Envelope
from penstock.outbox.sinks import function
from penstock.outbox.sinks.factory import MODULES, destination_of, make_sink
from penstock.outbox.sinks.sink import Delivery, Destination

KINDS = (*MODULES, function.KIND)
TEST_TYPE = "penstock.test"


@click.group()
def destination() -> None:
    """Add, try, rotate, enable and disable destinations of events."""


def state_of(one: DestinationStats) -> str:
    """The state of a destination in a word or two, the most pressing first."""
    if not one.enabled:
        return "disabled"
    if one.fault is not None:
        return "unusable"
    if one.paused:
        return "paused"
    return "ok" if one.breaker == "closed" else one.breaker.replace("_", " ")


@destination.command("list")
@click.pass_obj
def list_destinations(invocation: Invocation) -> None:
    """List the destinations, their state, and what is on its way to each."""
    found = invocation.run(_stats(invocation))
    rows = [{**_document(one), "state": state_of(one)} for one in found]
    columns: list[str | Column] = ["name", "kind", "state"]
    columns += [Column(name, right=True) for name in ("ready", "waiting", "leased", "dead")]
    columns += ["last_error", "fault"]
    invocation.out.table(columns, rows, empty="no destination is configured")


def _document(one: DestinationStats) -> dict[str, object]:
    return {name: getattr(one, name) for name in DestinationStats.__dataclass_fields__}


async def _stats(invocation: Invocation) -> list[DestinationStats]:
    async with invocation.connection() as conn:
        return await destinations.stats(conn)


@destination.command()
@click.argument("name")
@click.pass_obj
def show(invocation: Invocation, name: str) -> None:
    """Show how a destination is configured, its state and its routes; secrets as references."""

    async def read() -> dict[str, Any]:
        async with invocation.connection() as conn:
            settings = await destinations.settings_of(conn, name)
            if settings is None:
                raise _unknown(name)
            found = {one.name: one for one in await destinations.stats(conn)}
            routes = [one for one in await destinations.routes(conn) if one.destination == name]
        told = {**settings, **_document(found[name]), "state": state_of(found[name])}
        return {**told, "routes": [f"{one.route}: {one.topic}" for one in routes]}

    invocation.out.record(invocation.run(read()))


@destination.command()
@click.argument("name")
@click.option("--kind", type=click.Choice(sorted(KINDS)), help="Needed for a new one.")
@click.option("--url", help="Of kind http: where events are posted; short for --set url=URL.")
@click.option("--set", "pairs", multiple=True, metavar="NAME=JSON", help="One of its own settings.")
@click.option("--secret", "references", multiple=True, help="env:NAME or file:PATH; repeatable.")
@click.option("--concurrency", type=click.IntRange(1, 1000), help="Calls at once per worker.")
@click.option("--rate-per-s", type=click.FloatRange(0, min_open=True), help="Of all workers.")
@click.option("--breaker-after", type=click.IntRange(1, 1000), help="Failures in a row that open.")
@click.option("--breaker-pause-s", type=click.FloatRange(0, min_open=True), help="Open how long.")
@reason_option
@yes_option
@click.pass_obj
def add(
    invocation: Invocation,
    /,
    *,
    name: str,
    kind: str | None,
    url: str | None,
    pairs: tuple[str, ...],
    references: tuple[str, ...],
    reason: str,
    yes: bool,
    **limits: Any,
) -> None:
    """Add a destination, or change the settings of the one of that NAME that are given."""
    check_references(references)
    config = {**parse_pairs(pairs), **({} if url is None else {"url": url})}
    values: dict[str, Any] = {key: value for key, value in limits.items() if value is not None}
    if references:
        values["secret_refs"] = list(references)
    before = invocation.run(_settings(invocation, name))
    if before is None and kind is None:
        raise WrongUsage(f"there is no destination {name} yet", todo="say its --kind.")
    if config:
        values["config"] = {**(before["config"] if before else {}), **config}
    chosen = kind or (before["kind"] if before else "")
    out = invocation.out
    used = values.get("config", before["config"] if before else {})
    _check(invocation, Destination(name, chosen, used))
    out.plan([f"destination {name}: {chosen}", f"  {json.dumps(values)}"])
    warn_of_secrets(invocation, references)
    out.confirm(f"Write destination {name}?", yes=yes)
    audit_id = invocation.run(_put(invocation, name, values, kind=kind, reason=reason))
    out.done(f"destination {name} is written", audit_id=audit_id, destination=name)


def _check(invocation: Invocation, one: Destination) -> None:
    """Refuse here what no worker could use; its secrets may be known to the workers alone."""
    if one.kind == function.KIND:
        function.registration(one, source="")
        return
    try:
        make_sink(one, invocation.settings)
    except MissingExtra as error:
        invocation.out.say(f"not checked here: {error.what}")


async def _settings(invocation: Invocation, name: str) -> Any:
    async with invocation.connection() as conn:
        return await destinations.settings_of(conn, name)


async def _put(
    invocation: Invocation,
    name: str,
    values: dict[str, Any],
    *,
    kind: str | None = None,
    reason: str,
) -> UUID:
    async with invocation.transaction() as conn:
        return await destinations.put(
            conn, name, values, kind=kind, reason=reason, operator=operator_name()
        )


@destination.command()
@click.argument("name")
@reason_option
@yes_option
@click.pass_obj
def enable(invocation: Invocation, *, name: str, reason: str, yes: bool) -> None:
    """Deliver to it again, at once: an open breaker is closed, what waited goes."""
    _switch(invocation, name, True, reason=reason, yes=yes)


@destination.command()
@click.argument("name")
@reason_option
@yes_option
@click.pass_obj
def disable(invocation: Invocation, *, name: str, reason: str, yes: bool) -> None:
    """Deliver nothing to it; its deliveries wait."""
    _switch(invocation, name, False, reason=reason, yes=yes)


def _switch(invocation: Invocation, name: str, on: bool, *, reason: str, yes: bool) -> None:
    verb = "enable" if on else "disable"
    invocation.out.plan([f"{verb} destination {name}"])
    invocation.out.confirm(f"{verb.title()} {name}?", yes=yes)
    audit_id = invocation.run(_put(invocation, name, {"enabled": on}, reason=reason))
    invocation.out.done(f"{verb}d {name}", audit_id=audit_id, destination=name)


async def _rotate(conn: PooledConnection, name: str, reference: str | None, *, reason: str) -> UUID:
    return await destinations.rotate(conn, name, reference, reason=reason, operator=operator_name())


destination.add_command(rotate_command("destination", "sign", _rotate, note=warn_of_secrets))


@destination.command()
@click.argument("name")
@click.pass_obj
def test(invocation: Invocation, name: str) -> int:
    """Send one test event, of type penstock.test, from here; exit code 1 unless it is taken."""
    verdict, event, latency_ms = invocation.run(_try(invocation, name))
    told = {
        "destination": name,
        "event_id": event,
        "verdict": verdict_name(verdict),
        "code": getattr(verdict, "code", ""),
        "reason": getattr(verdict, "reason", "") or _phrase(getattr(verdict, "code", "")),
        "latency_ms": round(latency_ms, 1),
    }
    invocation.out.record(told)
    return 0 if isinstance(verdict, Done) else 1


def _phrase(code: str) -> str:
    """What a status means; the receiver's own words are not kept, they may quote the event."""
    status = code.removeprefix("HTTP_")
    try:
        return f"the receiver answered {status} {HTTPStatus(int(status)).phrase}"
    except ValueError:
        return ""


async def _try(invocation: Invocation, name: str) -> tuple[Verdict, UUID, float]:
    found = await _settings(invocation, name)
    if found is None:
        raise _unknown(name)
    if found["kind"] == function.KIND:
        raise WrongUsage(
            "a function is called in the transaction that finishes an event, so it is not tried",
            todo="publish an event to a topic that is routed to it.",
        )
    row = Row(
        name,
        found["kind"],
        found["config"],
        tuple(found["secret_refs"]),
        found["concurrency"],
        found["rate_per_s"],
    )
    sink = make_sink(destination_of(row, invocation.settings), invocation.settings)
    data = msgspec.Raw(b'{"hello":"from penstock"}')
    source = invocation.settings.event_source
    envelope = Envelope(uuid7(), TEST_TYPE, source, datetime.now(UTC), 1, data)
    started = time.monotonic()
    try:
        async with asyncio.timeout(60):
            await sink.open()
            (verdict,) = await sink.deliver([Delivery(TEST_TYPE, envelope, 1, 1, {})])
    finally:
        await sink.close()
    return verdict, envelope.id, (time.monotonic() - started) * 1000


def _unknown(name: str) -> NotFound:
    return NotFound(
        f"there is no destination {name}", todo="`penstock destination list` shows them."
    )
