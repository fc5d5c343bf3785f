"""`penstock source route`: events of a source that go straight on, to an endpoint or a function."""

from uuid import UUID

import click

from penstock.cli.invocation import Invocation, reason_option, warn_of_secrets, yes_option
from penstock.cli.output import plain
from penstock.cli.rotating import check_references
from penstock.cli.values import operator_name
from penstock.inbox import store
from penstock.inbox.model import RouteRow
from penstock.kernel.errors import WrongUsage


@click.group()
def route() -> None:
    """Add, list and remove routes: events that go straight on, without a handler in Python."""


@route.command("list")
@click.pass_obj
def list_routes(invocation: Invocation) -> None:
    """List the routes of all sources; secrets only as references."""

    async def read() -> list[RouteRow]:
        async with invocation.connection() as conn:
            return await store.all_routes(conn)

    columns = ["source", "pattern", "kind", "target", "secret_ref", "enabled"]
    rows = [plain(one) for one in invocation.run(read())]
    invocation.out.table(columns, rows, empty="no source has a route")


@route.command()
@click.argument("source")
@click.argument("pattern")
@click.argument("target")
@click.option("--secret", "reference", help="Signs what is sent: env:NAME or file:PATH.")
@reason_option
@yes_option
@click.pass_obj
def add(
    invocation: Invocation,
    *,
    source: str,
    pattern: str,
    target: str,
    reference: str | None,
    reason: str,
    yes: bool,
) -> None:
    """Send events of SOURCE whose type fits PATTERN, in which * stands for anything, to TARGET.

    TARGET is a URL, or a function that takes the event as jsonb, such as public.take: one that
    stands in webhook.route_functions. A handler of the application for the same pattern goes
    before. Running workers take a route up within a second or two.
    """
    kind = "http" if "://" in target else "sql"
    check_references([reference] if reference is not None else [])
    if reference is not None and kind == "sql":
        raise WrongUsage("a function gets no signature; leave --secret out")
    out = invocation.out
    signed = f", signed by {reference}" if reference else ""
    out.plan([f"route {source}/{pattern}: {kind} {target}{signed}"])
    warn_of_secrets(invocation, [reference] if reference else [])
    out.confirm(f"Write route {source}/{pattern}?", yes=yes)

    async def act() -> UUID:
        async with invocation.transaction() as conn:
            return await store.put_route(
                conn, source, pattern, kind, target, reference, reason, operator_name()
            )

    audit_id = invocation.run(act())
    out.done(
        f"route {source}/{pattern} is written; workers take it up within a second or two",
        audit_id=audit_id,
        route=f"{source}/{pattern}",
    )


@route.command()
@click.argument("source")
@click.argument("pattern")
@reason_option
@yes_option
@click.pass_obj
def remove(invocation: Invocation, *, source: str, pattern: str, reason: str, yes: bool) -> None:
    """Take the route of SOURCE for PATTERN away; its events wait for another taker."""
    out = invocation.out
    out.plan([f"remove route {source}/{pattern}; its events wait for another taker"])
    out.confirm(f"Remove route {source}/{pattern}?", yes=yes)

    async def act() -> UUID:
        async with invocation.transaction() as conn:
            return await store.remove_route(conn, source, pattern, reason, operator_name())

    audit_id = invocation.run(act())
    out.done(
        f"removed {source}/{pattern}; workers let go of it within a second or two",
        audit_id=audit_id,
        route=f"{source}/{pattern}",
    )
