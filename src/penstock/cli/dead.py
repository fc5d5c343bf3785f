"""`penstock dead`: list, show, replay and discard what needs a person, of any queue."""

import importlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import click

from penstock.cli.invocation import Invocation, reason_option, yes_option
from penstock.cli.output import Column, age, plain
from penstock.cli.replaying import Replay, Verify, run_replay
from penstock.cli.show import print_story
from penstock.cli.values import MOMENT, operator_name, parse_id
from penstock.kernel import operations
from penstock.kernel.errors import NotFound, WrongUsage
from penstock.kernel.operations import DeadFilter, DeadLetter
from penstock.outbox import destinations

# Queues whose items are verified before they run once more.
_VERIFIED = {"inbox": "penstock.inbox.verification:not_genuine"}
_LIMIT = click.IntRange(1, 100_000)


def filter_options(function: Any) -> Any:
    """Add the options that say which dead letters are meant."""
    for option in reversed(
        (
            click.option("--topic", help="Only of this topic."),
            click.option("--destination", help="Only deliveries to this destination."),
            click.option("--code", help="Only with this error code."),
            click.option("--fingerprint", help="Only errors of this kind."),
            click.option("--state", type=click.Choice(["DEAD", "HELD"], case_sensitive=False)),
            click.option("--since", type=MOMENT, help="Only since this time; 2h means 2 h ago."),
        )
    ):
        function = option(function)
    return function


def make_filter(queue: str | None, ids: Iterable[str] = (), **options: Any) -> DeadFilter:
    """The filter that the options describe."""
    state = options.get("state")
    return DeadFilter(
        queue=queue,
        topic=options.get("topic"),
        code=options.get("code"),
        fingerprint=options.get("fingerprint"),
        state=state.upper() if state else None,
        since=options.get("since"),
        ids=tuple(parse_id(text) for text in ids) or None,
    )


@click.group()
def dead() -> None:
    """Look at and act on dead and held items."""


@dead.command("list")
@click.argument("queue", required=False)
@filter_options
@click.option("--group", is_flag=True, help="Count by kind of error instead of listing.")
@click.option("--limit", type=_LIMIT, default=50, show_default=True)
@click.pass_obj
def list_dead(
    invocation: Invocation, /, *, queue: str | None, group: bool, limit: int, **options: Any
) -> int:
    """List dead letters, oldest first; never their payloads. Exit code 1 if there are any."""
    wanted = make_filter(queue, **options)
    most = 100_000 if group else limit
    letters = invocation.run(_find(invocation, wanted, limit=most, to=options["destination"]))
    if group:
        columns: list[str | Column] = ["queue", "error_code", "fingerprint"]
        columns += [Column("count", right=True), Column("oldest", right=True), "example"]
        invocation.out.table(columns, _grouped(letters), empty="nothing is dead or held")
    else:
        names = ["queue", "id", "topic", "state", "error_code", "attempts", "dead_at", "error"]
        invocation.out.table(names, plain(letters), empty="nothing is dead or held")
    return 1 if letters else 0


async def _find(
    invocation: Invocation, wanted: DeadFilter, *, limit: int, to: str | None
) -> list[DeadLetter]:
    async with invocation.connection() as conn:
        if to is not None:
            found = await destinations.dead(conn, to)
            named = set(found if wanted.ids is None else wanted.ids)
            wanted = replace(wanted, ids=tuple(one for one in found if one in named))
        if wanted.queue and wanted.queue not in (known := await operations.queue_names(conn)):
            raise NotFound(f"there is no queue {wanted.queue}; there is {', '.join(known)}")
        return await operations.dead_letters(conn, wanted, limit=limit)


def _grouped(letters: Sequence[DeadLetter]) -> list[dict[str, object]]:
    now = datetime.now(UTC)
    kinds = Counter((letter.queue, letter.error_code, letter.fingerprint) for letter in letters)
    first: dict[tuple[str, str | None, str | None], DeadLetter] = {}
    for letter in letters:
        first.setdefault((letter.queue, letter.error_code, letter.fingerprint), letter)
    return [
        {
            "queue": kind[0],
            "error_code": kind[1],
            "fingerprint": kind[2],
            "count": count,
            "oldest": age((now - first[kind].dead_at).total_seconds()),
            "example": (first[kind].error or "")[:80],
        }
        for kind, count in kinds.most_common()
    ]


@dead.command()
@click.argument("item_id", metavar="ID")
@click.pass_obj
def show(invocation: Invocation, item_id: str) -> None:
    """Show the story of one dead letter; `penstock show ID --payload` also its payload."""

    async def read() -> dict[str, Any]:
        async with invocation.connection() as conn:
            return await operations.story(
                conn, parse_id(item_id), payload_reason=None, operator=operator_name()
            )

    print_story(invocation.out, invocation.run(read()))


@dead.command()
@click.argument("queue")
@click.argument("ids", nargs=-1, metavar="[ID]...")
@filter_options
@click.option("--all", "everything", is_flag=True, help="Everything that is dead in the queue.")
@click.option("--limit", type=_LIMIT, default=10_000, show_default=True, help="Most items.")
@click.option("--canary", type=click.IntRange(1, 1000), help="Replay so many first, and wait.")
@click.option(
    "--rate", type=click.IntRange(1, 10_000), default=50, show_default=True, help="Per s."
)
@click.option("--wait-s", type=click.FloatRange(1, 3600), default=60.0, show_default=True)
@click.option("--unverified", is_flag=True, help="Also events whose bytes no longer verify.")
@click.option("--dry-run", is_flag=True, help="Print the plan and stop.")
@reason_option
@yes_option
@click.pass_obj
def replay(
    invocation: Invocation,
    /,
    *,
    queue: str,
    ids: tuple[str, ...],
    everything: bool,
    limit: int,
    canary: int | None,
    rate: int,
    wait_s: float,
    unverified: bool,
    dry_run: bool,
    reason: str,
    yes: bool,
    **options: Any,
) -> int:
    """Give dead letters of QUEUE a new cycle of attempts, a few first if asked.

    Safe to stop and to repeat: what has been replayed is no longer dead. Events of the inbox are
    verified again by their stored bytes, and left out where they do not verify: exit code 1.
    """
    letters = _selected(invocation, queue, ids, limit=limit, everything=everything, **options)
    pace = f"{rate}/s, stop if > 2 % fail"
    plan = f"{canary} now (canary), wait for {canary} successes, then {pace}" if canary else pace
    if not _agreed(invocation, letters, f"Replay {queue}", plan=plan, dry_run=dry_run, yes=yes):
        return 0
    work = Replay(
        queue=queue,
        ids=tuple(letter.id for letter in letters),
        reason=reason,
        operator=operator_name(),
        canary=canary or 0,
        rate=rate,
        wait_s=wait_s,
        verify=None if unverified else _verify(queue),
    )
    result = invocation.run(run_replay(invocation, work))
    invocation.out.done(
        f"replayed {result.replayed:,} of {len(letters):,}{result.note}",
        audit_id=result.audit_id,
        replayed=result.replayed,
        skipped=len(letters) - result.replayed,
        failed_again=result.failed,
        unverified=result.refused,
        stopped=result.stopped,
    )
    return 1 if result.stopped or result.refused else 0


def _verify(queue: str) -> Verify | None:
    if queue not in _VERIFIED:
        return None
    module, _, name = _VERIFIED[queue].partition(":")
    verify: Verify = getattr(importlib.import_module(module), name)
    return verify


@dead.command()
@click.argument("queue")
@click.argument("ids", nargs=-1, metavar="[ID]...")
@filter_options
@click.option("--all", "everything", is_flag=True, help="Everything that is dead in the queue.")
@click.option("--limit", type=_LIMIT, default=10_000, show_default=True, help="Most items.")
@click.option("--dry-run", is_flag=True, help="Print the plan and stop.")
@reason_option
@yes_option
@click.pass_obj
def discard(
    invocation: Invocation,
    /,
    *,
    queue: str,
    ids: tuple[str, ...],
    everything: bool,
    limit: int,
    dry_run: bool,
    reason: str,
    yes: bool,
    **options: Any,
) -> int:
    """Give dead letters of QUEUE up for good; they stay in the archive and the audit log."""
    letters = _selected(invocation, queue, ids, limit=limit, everything=everything, **options)
    plan = "discard for good; nothing delivers them afterwards"
    if not _agreed(invocation, letters, f"Discard {queue}", plan=plan, dry_run=dry_run, yes=yes):
        return 0

    async def act() -> dict[UUID, UUID]:
        gone: dict[UUID, UUID] = {}
        chosen = [letter.id for letter in letters]
        async with invocation.transaction() as conn:
            for start in range(0, len(chosen), operations.REPLAY_MAX):
                gone |= await operations.discard(
                    conn,
                    queue,
                    chosen[start : start + operations.REPLAY_MAX],
                    reason=reason,
                    operator=operator_name(),
                )
        return gone

    gone = invocation.run(act())
    last = next(reversed(gone.values()), None)
    invocation.out.done(f"discarded {len(gone):,}", audit_id=last, discarded=len(gone))
    return 0


def _selected(
    invocation: Invocation,
    queue: str,
    ids: tuple[str, ...],
    *,
    limit: int,
    everything: bool,
    **options: Any,
) -> list[DeadLetter]:
    """The letters meant; saying nothing is not the same as saying everything."""
    if not ids and not everything and not any(options.values()):
        raise WrongUsage(
            "nothing is selected",
            todo="name ids, narrow with --topic, --destination, --code, --fingerprint or --since,"
            " or say --all.",
        )
    wanted = make_filter(queue, ids, **options)
    return invocation.run(_find(invocation, wanted, limit=limit, to=options["destination"]))


def _agreed(
    invocation: Invocation,
    letters: Sequence[DeadLetter],
    question: str,
    *,
    plan: str,
    dry_run: bool,
    yes: bool,
) -> bool:
    """Print the plan and ask; False when there is nothing to do."""
    out = invocation.out
    if not letters:
        out.done("nothing matches", audit_id=None, matched=0)
        return False
    now = datetime.now(UTC)
    oldest = max((now - letter.dead_at).total_seconds() for letter in letters)
    codes = Counter(letter.error_code or "-" for letter in letters)
    topics = {letter.topic for letter in letters}
    by_code = "  ".join(f"{code} {count:,}" for code, count in codes.most_common(5))
    out.plan(
        [
            f"{len(letters):,} items, {len(topics)} topics, oldest {age(oldest)}",
            f"by code   {by_code}",
            f"plan      {plan}",
        ]
    )
    if dry_run:
        out.done("dry run: nothing was changed", audit_id=None, matched=len(letters))
        return False
    out.confirm(f"{question}: {len(letters):,} items?", yes=yes)
    return True
