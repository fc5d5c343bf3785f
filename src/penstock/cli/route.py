"""`penstock route` and `penstock topic`: which events go where, and what they look like."""

import asyncio
import json
import re
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import click

from penstock.cli.invocation import Invocation, reason_option, yes_option
from penstock.cli.output import plain
from penstock.cli.values import operator_name
from penstock.kernel.errors import NotFound
from penstock.outbox import destinations, store
from penstock.outbox.destinations import RouteRow, SchemaRow

HELD_TRIES = 10
HELD_PAUSE_S = 0.2


@click.group()
def route() -> None:
    """Add, list and remove routes: which events go to which destination."""


@route.command("list")
@click.pass_obj
def list_routes(invocation: Invocation) -> None:
    """List the routes, those of handlers in Python too."""
    found = invocation.run(_routes(invocation))
    columns = ["route", "topic", "filter", "destination", "enabled"]
    invocation.out.table(columns, [plain(one) for one in found], empty="there is no route")


async def _routes(invocation: Invocation) -> list[RouteRow]:
    async with invocation.connection() as conn:
        return await destinations.routes(conn)


@route.command()
@click.argument("topic")
@click.argument("destination")
@click.option("--name", help="Of the route; without it DESTINATION/TOPIC.")
@click.option("--filter", "predicate", help="A jsonpath predicate, such as '$.amount > 100'.")
@reason_option
@yes_option
@click.pass_obj
def add(
    invocation: Invocation,
    *,
    topic: str,
    destination: str,
    name: str | None,
    predicate: str | None,
    reason: str,
    yes: bool,
) -> None:
    """Send events of TOPIC, in which * stands for anything, to DESTINATION."""
    named = name or f"{destination}/{topic}"
    values: dict[str, Any] = {"topic": topic, "destination": destination, "filter": predicate}
    out = invocation.out
    where = f" where {predicate}" if predicate else ""
    out.plan([f"route {named}: {topic}{where} to {destination}, for events from now on"])
    out.confirm(f"Write route {named}?", yes=yes)

    async def act() -> UUID:
        async with invocation.transaction() as conn:
            return await destinations.set_route(
                conn, named, values, reason=reason, operator=operator_name()
            )

    out.done(f"route {named} is written", audit_id=invocation.run(act()), route=named)


@route.command()
@click.argument("name")
@reason_option
@yes_option
@click.pass_obj
def remove(invocation: Invocation, *, name: str, reason: str, yes: bool) -> None:
    """Take a route away; what waits on it is cancelled, a thousand at a time."""
    out = invocation.out
    out.plan([f"remove route {name}; deliveries that wait on it are cancelled"])
    out.confirm(f"Remove route {name}?", yes=yes)

    async def act() -> UUID:
        async with invocation.transaction() as conn:
            return await destinations.remove_route(
                conn, name, reason=reason, operator=operator_name()
            )

    audit_id = invocation.run(act())
    cancelled, ended = invocation.run(_cancel(invocation, name))
    text = f"removed {name}, {cancelled:,} deliveries are cancelled"
    if not ended:
        text += "; some are held by open transactions, and a worker cancels them later"
    out.done(text, audit_id=audit_id, route=name, cancelled=cancelled, ended=ended)


async def _cancel(invocation: Invocation, name: str) -> tuple[int, bool]:
    """Cancel what the route leaves; how many, and whether it was all."""
    cancelled, patience = 0, HELD_TRIES
    async with invocation.connection() as conn:
        while patience:
            step = await store.remove_step(conn, name)
            cancelled += step["cancelled"]
            if step["ended"]:
                return cancelled, True
            if step["held"] and not step["cancelled"]:
                patience -= 1
                await asyncio.sleep(HELD_PAUSE_S)
    return cancelled, False


@click.group()
def topic() -> None:
    """List the topics that are known, and print their schemas."""


@topic.command("list")
@click.pass_obj
def list_topics(invocation: Invocation) -> None:
    """List topics that have a schema or a route of their own, and where their events go."""
    schemas, routes = invocation.run(_topics(invocation))
    versions: dict[str, list[int]] = {}
    for one in schemas:
        versions.setdefault(one.topic, []).append(one.version)
    names = sorted({*versions, *(one.topic for one in routes if "*" not in one.topic)})
    rows = [
        {"topic": name, "versions": versions.get(name, []), "goes_to": _goes_to(name, routes)}
        for name in names
    ]
    invocation.out.table(["topic", "versions", "goes_to"], rows, empty="no topic is known")


def _goes_to(name: str, routes: Sequence[RouteRow]) -> list[str]:
    fitting = (
        one.destination + (" (filtered)" if one.filter else "")
        for one in routes
        if one.enabled and _pattern(one.topic).fullmatch(name)
    )
    return sorted(set(fitting))


def _pattern(text: str) -> "re.Pattern[str]":
    return re.compile(".*".join(re.escape(part) for part in text.split("*")), re.DOTALL)


@topic.command()
@click.argument("name")
@click.option("--version", type=click.IntRange(1), help="Without it the newest.")
@click.pass_obj
def schema(invocation: Invocation, *, name: str, version: int | None) -> None:
    """Print the JSON Schema of a topic's payloads."""
    schemas, _ = invocation.run(_topics(invocation))
    found = [s for s in schemas if s.topic == name and version in (None, s.version)]
    if not found:
        raise NotFound(
            f"no schema of topic {name} is kept",
            todo="a worker keeps the schema of each topic with a model that it handles.",
        )
    invocation.out.data(json.loads(found[-1].schema))


async def _topics(invocation: Invocation) -> tuple[list[SchemaRow], list[RouteRow]]:
    async with invocation.connection() as conn:
        return await destinations.schemas(conn), await destinations.routes(conn)
