"""`python -m penstock.inbox.replay`: give dead letters a new cycle, with bound parameters only.

What `tools/webhook_replay.sh` runs. Exit codes: 0 replayed (or nothing to do), 1 wrong usage, 2 no
database, 3 something was left out because its stored bytes do not verify.
"""

import argparse
import asyncio
import getpass
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NoReturn
from uuid import UUID

from penstock.inbox import store
from penstock.inbox.model import DeadEvent, DeadQuery
from penstock.inbox.verification import not_genuine
from penstock.kernel.database import Database
from penstock.kernel.errors import (
    BadSetting,
    DatabaseUnreachable,
    NoDatabase,
    PenstockError,
)
from penstock.kernel.queue import Connection
from penstock.kernel.settings import load_settings

USAGE, NO_DATABASE, UNVERIFIED = 1, 2, 3
LIMIT_MAX = 1000


@dataclass(frozen=True, slots=True)
class Wish:
    """What the operator asked for."""

    query: DeadQuery
    reason: str
    operator: str
    key_suffix: str | None = None
    dry_run: bool = False
    unverified: bool = False


class _Parser(argparse.ArgumentParser):
    """Wrong usage ends with 1, as the script always did."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(USAGE, f"{self.prog}: {message}\n")


def _limit(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= LIMIT_MAX):
        raise argparse.ArgumentTypeError(f"wants a number from 1 to {LIMIT_MAX}")
    return int(text)


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError("wants a time such as 2026-05-01T12:00Z") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _parser() -> _Parser:
    parser = _Parser(prog="webhook_replay", description="Replay dead-lettered webhook events.")
    add = parser.add_argument
    add("--webhook-id", type=UUID, metavar="UUID", help="only events of this webhook")
    add("--source", help="only events of the source of this name")
    add("--event-id", metavar="ID", help="only the event that its sender calls so")
    add("--event-type", metavar="TYPE", help="only events of this type")
    add("--error-code", metavar="CODE", help="only events that died with this code")
    add("--after", type=_moment, metavar="TIME", help="only events received at or after this time")
    add("--cutoff-date", "--before", dest="before", type=_moment, metavar="TIME")
    add("--limit", type=_limit, default=100, metavar="N", help="at most so many (100)")
    add("--dry-run", action="store_true", help="show what would be replayed and change nothing")
    add("--reason", default="replayed by webhook_replay", help="goes into the audit log")
    add("--operator", default=_account(), help="who does this; goes into the audit log")
    add(
        "--idempotency-key", metavar="SUFFIX", help="give effects that were never answered new keys"
    )
    add("--unverified", action="store_true", help="also what its secrets no longer verify")
    return parser


def _account() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return ""


def wish_of(arguments: Sequence[str]) -> Wish:
    """Read the command line; ends the process with 1 when it makes no sense."""
    parser = _parser()
    given = parser.parse_args(list(arguments))
    if given.webhook_id is None and given.event_id is None and given.source is None:
        parser.error("either --webhook-id, --source or --event-id must be provided")
    if not given.operator.strip() or not given.reason.strip():
        parser.error("--operator and --reason must not be empty")
    if any("\0" in (value or "") for value in (given.event_id, given.source, given.event_type)):
        parser.error("a NUL is part of no name")
    query = DeadQuery(
        source=given.source,
        webhook_id=given.webhook_id,
        event_id=given.event_id,
        event_type=given.event_type,
        error_code=given.error_code,
        after=given.after,
        before=given.before,
        limit=given.limit,
    )
    return Wish(
        query,
        reason=given.reason,
        operator=given.operator,
        key_suffix=given.idempotency_key,
        dry_run=given.dry_run,
        unverified=given.unverified,
    )


async def replay(database: Database, wish: Wish) -> int:
    """Find, verify and replay; returns the exit code."""
    async with database.connection() as conn:
        if wish.dry_run:
            async with conn.transaction(readonly=True):
                found, refused = await _find(conn, wish)
        else:
            found, refused = await _find(conn, wish)
        if wish.query.event_id and len({event.webhook_id for event in found}) > 1:
            sys.stderr.write(
                "several webhooks have an event of that id; name one with --webhook-id\n"
            )
            return USAGE
        if wish.dry_run:
            print("Dry run mode - exiting without changes")
            return 0
        ids = [event.id for event in found if event.id not in refused]
        done = await store.replay(conn, ids, wish.reason, wish.operator, wish.key_suffix)
    print(f"Replaying events: {len(done)}")
    for event_id, audit_id in done:
        print(f"  {event_id}  audit {audit_id}")
    print("Replay complete.")
    return UNVERIFIED if refused else 0


async def _find(conn: Connection, wish: Wish) -> tuple[list[DeadEvent], set[UUID]]:
    found = await store.dead(conn, wish.query)
    # A dry run may write nothing, and reading bodies writes an audit row: it does not verify.
    verify = bool(found) and not (wish.unverified or wish.dry_run)
    refused: set[UUID] = set()
    if verify:
        ids = [event.id for event in found]
        refused = await not_genuine(conn, ids, reason=wish.reason, operator=wish.operator)
    print(f"Found dead-letter rows: {len(found)}")
    for event in found:
        note = "  DOES NOT VERIFY, left out" if event.id in refused else ""
        print(
            f"  {event.id}  {event.source or event.webhook_id}  {event.event_id!r}"
            f"  attempts {event.attempts}  {event.error_code}{note}"
        )
    if refused:
        print("what does not verify is replayed only with --unverified; see the runbook")
    return found, refused


async def _run(wish: Wish) -> int:
    settings = load_settings(os.environ)
    database = Database(settings.require_database(), size=2, application_name="webhook_replay")
    await database.open()
    try:
        return await replay(database, wish)
    finally:
        await database.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    wish = wish_of(sys.argv[1:] if arguments is None else arguments)
    try:
        return asyncio.run(_run(wish))
    except (NoDatabase, BadSetting, DatabaseUnreachable) as error:
        sys.stderr.write(f"{error.explain()}\n")
        return NO_DATABASE
    except PenstockError as error:
        sys.stderr.write(f"{error.explain()}\n")
        return USAGE


if __name__ == "__main__":
    sys.exit(main())
