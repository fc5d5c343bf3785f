"""`penstock blocked`, `penstock park` and `penstock skip`: ordering keys that do not move."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from uuid import UUID

import click

from penstock.cli.invocation import Invocation, reason_option, yes_option
from penstock.cli.output import Column, plain
from penstock.cli.values import operator_name, parse_id
from penstock.kernel.errors import NotFound
from penstock.outbox import operations
from penstock.outbox.operations import BlockedKey, Key

F = TypeVar("F", bound=Callable[..., object])
Act = Callable[..., Awaitable[dict[UUID, UUID]]]

_LIMIT = click.IntRange(1, 10_000)


def key_options(function: F) -> F:
    """Add the options that say which line of a key is meant."""
    function = click.option("--route", help="The line of this route; `blocked` shows it.")(function)
    return click.option("--tenant", help="The line of this tenant; `blocked` shows it.")(function)


@click.command()
@click.argument("key", required=False)
@click.option("--limit", type=_LIMIT, default=50, show_default=True)
@click.pass_obj
def blocked(invocation: Invocation, *, key: str | None, limit: int) -> int:
    """List ordering keys that do not move; exit code 1 if there are any.

    Their head is dead, held, or waits for another attempt, and everything behind it waits too.
    """

    async def read() -> list[BlockedKey]:
        async with invocation.connection() as conn:
            return await operations.blocked_keys(conn, key, limit=limit)

    found = invocation.run(read())
    columns: list[str | Column] = ["ordering_key", "tenant_id", "route", "topic", "state"]
    columns += ["error_code", "head_id", Column("attempts", right=True)]
    columns += [Column("behind", right=True), "next_attempt_at"]
    invocation.out.table(columns, plain(found), empty="no ordering key is blocked")
    return 1 if found else 0


@click.command()
@click.argument("key")
@key_options
@reason_option
@yes_option
@click.pass_obj
def park(invocation: Invocation, /, *, key: str, reason: str, yes: bool, **options: Any) -> None:
    """Set the head of KEY aside as a dead letter and let the next one go.

    A replay puts it at the end of its line: from then on its order is lost.
    """
    _act(
        invocation,
        _key(key, **options),
        operations.park,
        words=(
            "park",
            "parked",
            "it becomes a dead letter and can be replayed later, out of order",
        ),
        reason=reason,
        yes=yes,
    )


@click.command()
@click.argument("key")
@key_options
@reason_option
@yes_option
@click.pass_obj
def skip(invocation: Invocation, /, *, key: str, reason: str, yes: bool, **options: Any) -> None:
    """Give the head of KEY up for good and let the next one go."""
    _act(
        invocation,
        _key(key, **options),
        operations.skip,
        words=("skip", "skipped", "nothing delivers it afterwards; it stays in the archive"),
        reason=reason,
        yes=yes,
    )


def _key(name: str, *, tenant: str | None, route: str | None) -> Key:
    return Key(name, None if tenant is None else parse_id(tenant), route)


def _act(
    invocation: Invocation,
    key: Key,
    act: Act,
    *,
    words: tuple[str, str, str],
    reason: str,
    yes: bool,
) -> None:
    out = invocation.out
    verb, done, meaning = words
    heads = [
        head
        for head in invocation.run(_heads(invocation, key))
        if head.tenant_id == key.tenant and head.route == key.route
    ]
    for head in heads:
        error = f", {head.error_code}" if head.error_code else ""
        out.plan([f"{verb} {head.head_id} of {head.topic} ({head.state}{error}): {meaning}"])
        out.plan([f"{head.behind:,} behind it may go on"])
    if not heads:
        out.plan([f"{verb} the head of {key.name}, which is not blocked now: {meaning}"])
    out.confirm(f"{verb.capitalize()} the head of {key.name}?", yes=yes)
    audits = invocation.run(_change(invocation, key, act, reason=reason))
    if not audits:
        raise NotFound(
            f"no event heads the key {key.name} here, or a worker has it just now",
            todo="`penstock blocked` lists keys with their tenant and route; name both.",
        )
    ((head_id, audit_id),) = audits.items()
    out.done(f"{done} {head_id}", audit_id=audit_id, id=head_id, ordering_key=key.name)


async def _heads(invocation: Invocation, key: Key) -> list[BlockedKey]:
    async with invocation.connection() as conn:
        return await operations.blocked_keys(conn, key.name, limit=1000)


async def _change(invocation: Invocation, key: Key, act: Act, *, reason: str) -> dict[UUID, UUID]:
    async with invocation.transaction() as conn:
        return await act(conn, key, reason=reason, operator=operator_name())
