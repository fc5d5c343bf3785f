"""`penstock resend`: delivered events once more, to one destination, in pieces and at a rate."""

import asyncio
import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import click

from penstock.cli.invocation import Invocation, yes_option
from penstock.cli.output import Output, Progress
from penstock.cli.values import MOMENT, operator_name, parse_id
from penstock.kernel.errors import NotFound, ReasonRequired, WrongUsage
from penstock.kernel.queue import Connection
from penstock.outbox import operations
from penstock.outbox.operations import Resend, ResendPart, ResendState

STEP_MAX = 500
WAITING_MAX = 5_000
_LOOK_EVERY_S = 0.5


@click.command()
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option("--destination", help="Where to; a route of it must take the events.")
@click.option("--since", type=MOMENT, help="Delivered since this time; 2h means 2 h ago.")
@click.option("--until", type=MOMENT, help="Delivered before this time; without it, until now.")
@click.option("--topic", help="Only of this topic, or of a pattern such as orders.*.")
@click.option("--missing", is_flag=True, help="Only what was not delivered there before.")
@click.option(
    "--rate", type=click.IntRange(1, 10_000), default=50, show_default=True, help="Per s."
)
@click.option("--dry-run", is_flag=True, help="Print the plan and stop.")
@click.option("--resume", metavar="RESEND", help="Go on with one that was stopped.")
@click.option("--list", "listing", is_flag=True, help="Show the latest resends.")
@click.option("--reason", help="Why; goes into the audit log.")
@yes_option
@click.pass_obj
def resend(
    invocation: Invocation,
    /,
    *,
    ids: tuple[str, ...],
    rate: int,
    dry_run: bool,
    resume: str | None,
    listing: bool,
    reason: str | None,
    yes: bool,
    **options: Any,
) -> int:
    """Send delivered events once more to one destination, under the same ids.

    Also fills a new destination: add its route, then resend. Ctrl-C stops it between two steps;
    `--resume` goes on. Events past retention are gone.
    """
    if listing:
        states = invocation.run(_states(invocation, None))
        invocation.out.table(_COLUMNS, [_row(state) for state in states], empty="no resends")
        return 0
    if resume is not None:
        return _finish(invocation, parse_id(resume), rate=rate)
    wanted = _wanted(ids, **options)
    parts = invocation.run(_plan(invocation, wanted))
    total = sum(part.events for part in parts if part.route is not None)
    _print_plan(invocation.out, parts, rate)
    if dry_run or not total:
        words = "dry run: nothing was changed" if total else "nothing matches"
        invocation.out.done(words, audit_id=None, matched=total)
        return 0
    if not (reason or "").strip():
        raise ReasonRequired("a resend needs a reason")
    invocation.out.confirm(f"Resend {total:,} events to {wanted.destination}?", yes=yes)
    begun = invocation.run(_begin(invocation, wanted, str(reason)))
    return _finish(invocation, begun, rate=rate, total=total)


_COLUMNS = ["id", "destination", "topic", "sent", "seen", "position_at", "until_at", "ended_at"]


def _row(state: ResendState) -> dict[str, object]:
    return {name: getattr(state, name) for name in _COLUMNS}


def _wanted(
    ids: Sequence[str],
    *,
    destination: str | None,
    since: datetime | None,
    until: datetime | None,
    topic: str | None,
    missing: bool,
) -> Resend:
    """What is meant; saying nothing is not the same as saying everything."""
    if destination is None:
        raise WrongUsage("no destination is named", todo="say --destination NAME.")
    if bool(ids) == (since is not None):
        raise WrongUsage(
            "name either ids or a time range", todo="say --since 2h, or give the ids of events."
        )
    chosen = tuple(parse_id(text) for text in ids) or None
    return Resend(destination, since, until, topic, chosen, missing)


async def _plan(invocation: Invocation, wanted: Resend) -> list[ResendPart]:
    async with invocation.connection() as conn:
        return await operations.plan_resend(conn, wanted)


async def _begin(invocation: Invocation, wanted: Resend, reason: str) -> UUID:
    async with invocation.transaction() as conn:
        return await operations.begin_resend(conn, wanted, reason=reason, operator=operator_name())


async def _states(invocation: Invocation, wanted: UUID | None) -> Sequence[ResendState]:
    async with invocation.connection() as conn:
        return await operations.resends(conn, wanted)


def _print_plan(out: Output, parts: Sequence[ResendPart], rate: int) -> None:
    lines = []
    for part in parts:
        way = f"by route {part.route}" if part.route else "not sent: no route, or there already"
        span = f"{part.oldest:%Y-%m-%d %H:%M} to {part.newest:%Y-%m-%d %H:%M}"
        lines.append(f"{part.events:>9,}  {part.topic}  {span}  {way}")
    if sum(part.events for part in parts) >= operations.PLAN_MAX:
        lines.append(f"and perhaps more: counted up to {operations.PLAN_MAX:,}")
    out.plan([*lines, f"plan      {rate}/s; waits while {WAITING_MAX:,} are not delivered yet"])


def _finish(invocation: Invocation, begun: UUID, *, rate: int, total: int | None = None) -> int:
    state = invocation.run(_send(invocation, begun, rate=rate, total=total))
    invocation.out.done(
        f"resent {state.sent:,} of {state.seen:,} events looked at",
        audit_id=state.audit_id,
        resend=begun,
        sent=state.sent,
        seen=state.seen,
        ended=state.ended_at is not None,
    )
    return 0


async def _send(
    invocation: Invocation, begun: UUID, *, rate: int, total: int | None
) -> ResendState:
    out = invocation.out
    async with invocation.connection() as conn:
        if not await operations.resends(conn, begun):
            raise NotFound(f"there is no resend {begun}")
        try:
            with out.progress("resend", total or 0) as progress:
                await _steadily(conn, begun, rate=rate, progress=progress)
        except asyncio.CancelledError:
            out.say(f"stopped; go on with: penstock resend --resume {begun}")
            raise
        (state,) = await operations.resends(conn, begun)
        return state


async def _steadily(conn: Connection, begun: UUID, *, rate: int, progress: Progress) -> None:
    """At most `rate` per second, and none while the destination is far behind."""
    size = min(rate, STEP_MAX)
    while True:
        started = time.monotonic()
        step = await operations.step_resend(conn, begun, size)
        progress.advance(step.sent)
        if step.ended:
            return
        pause_s = step.sent / rate - (time.monotonic() - started)
        if step.waiting >= WAITING_MAX:
            pause_s = max(pause_s, _LOOK_EVERY_S)
        await asyncio.sleep(max(0.0, pause_s))
