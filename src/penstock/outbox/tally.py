"""How deliveries went, counted by destination and told to the breaker that all workers share.

Nothing is written while all goes well: only failures are told, and successes that end a row of
failures or answer a breaker's question. What came meanwhile goes into one statement.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from time import monotonic
from uuid import UUID

from penstock.kernel.database import PASSING_ERRORS, Database
from penstock.kernel.events import DestinationChanged, Events
from penstock.kernel.verdict import Done, Reject, Retry, Unknown, Verdict
from penstock.outbox import destinations
from penstock.outbox.claims import Claims

GONE = "HTTP_410"
ABOUT_US = frozenset({GONE, "HTTP_401"})
FAILING_MAX = 1000
WINDOW_S = 10.0
RETRY_S = 1.0
FINAL_S = 2.0
TELL_WITHIN_S = 2.0


@dataclass(slots=True)
class _Count:
    """Calls to one destination since the last report; `ok` of the last seconds only.

    `gone` is the version of the destination that said so.
    """

    ok: int = 0
    failed: int = 0
    code: str = ""
    gone: int | None = None
    since: float = field(default_factory=monotonic)


class Tally:
    """Counts the verdicts of one worker."""

    def __init__(self, database: Database, events: Events, claims: Claims) -> None:
        self._database = database
        self._events = events
        self._claims = claims
        self._counts: dict[str, _Count] = {}
        self._failing: dict[str, set[UUID]] = {}
        self._due = asyncio.Event()
        self._told = asyncio.Event()

    def is_open(self, destination: str) -> bool:
        """Whether its breaker was found open, and nothing has been claimed for it since."""
        return destination in self._claims.open

    async def note(
        self,
        destination: str,
        verdicts: Sequence[Verdict],
        events: Sequence[UUID],
        *,
        version: int = 1,
    ) -> None:
        """Count what came of a call. A refusal of one event is an answer like any other.

        After a failure it returns when that has been told: so a worker sends no more into an outage
        than it had under way. An event that fails again and again counts once: it may be the event.
        """
        count = self._counts.setdefault(destination, _Count())
        if monotonic() - count.since > WINDOW_S:
            count.ok, count.since = 0, monotonic()
        failed_before = count.failed
        for verdict, event in zip(verdicts, events, strict=True):
            if isinstance(verdict, Done | Reject):
                count.ok += 1
                self._failing.pop(destination, None)
            elif self._is_news(destination, verdict, event):
                count.failed += 1
                count.code = verdict.code
                if verdict.code == GONE:
                    count.gone = version
        if count.failed or destination in self._claims.watched:
            self._due.set()
        if count.failed > failed_before:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._told.wait(), TELL_WITHIN_S)

    def _is_news(self, destination: str, verdict: Retry | Unknown, event: UUID) -> bool:
        failing = self._failing.setdefault(destination, set())
        known = event in failing
        if len(failing) < FAILING_MAX:
            failing.add(event)
        return not known or verdict.code in ABOUT_US or destination in self._claims.probing

    async def run(self) -> None:
        """Report until cancelled."""
        while True:
            await self._due.wait()
            self._due.clear()
            try:
                await self._report()
            except PASSING_ERRORS:
                self._due.set()
                await asyncio.sleep(RETRY_S)

    async def finish(self) -> None:
        """Report what is left, if that is quickly done: the breaker is of use to others only."""
        try:
            async with asyncio.timeout(FINAL_S):
                await self._report()
        except TimeoutError:
            return
        except PASSING_ERRORS:
            return

    async def _report(self) -> None:
        told = {
            name: count
            for name, count in self._counts.items()
            if count.failed or (count.ok and name in self._claims.watched)
        }
        if not told:
            return
        for name in told:
            del self._counts[name]
        told_of, self._told = self._told, asyncio.Event()
        try:
            await self._write(told)
            told_of.set()
        except BaseException:
            for name, count in told.items():
                self._add_back(name, count)
            raise

    async def _write(self, told: dict[str, _Count]) -> None:
        counts = list(told.values())
        async with self._database.connection() as conn:
            states = await destinations.weigh(
                conn,
                list(told),
                [count.ok for count in counts],
                [count.failed for count in counts],
                [count.code for count in counts],
            )
            for name, count in told.items():
                if count.gone is not None and await destinations.gone(
                    conn, name, GONE, version=count.gone
                ):
                    self._events.emit(DestinationChanged(name, "gone", GONE))
        for name, state in states.items():
            if state.breaker == "open":
                self._claims.open.add(name)
            if state.moved:
                code = told[name].code if state.breaker == "open" else ""
                self._events.emit(DestinationChanged(name, state.breaker, code))

    def _add_back(self, name: str, count: _Count) -> None:
        newer = self._counts.setdefault(name, _Count())
        newer.ok += count.ok
        newer.failed += count.failed
        newer.code = newer.code or count.code
        newer.gone = count.gone if newer.gone is None else newer.gone
