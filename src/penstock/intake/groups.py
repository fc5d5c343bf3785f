"""The front door: claims that arrive together go to the database together.

While a call for a pool is in flight, further claims gather; when it returns they go as one. There
is no timer, so a lone claim does not wait, and a burst costs a few large calls instead of many
small ones. Every claim gets its own answer.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import TypeAlias

from penstock.intake.answers import Busy, ReserveAnswer
from penstock.kernel.http_errors import OverCapacity

BATCH_MAX = 1000
CALLS_MAX = 2
# A second call pays when there is enough to carry: two small ones cost more than one of both.
SECOND_CALL_MIN = 64
WAITING_PER_USER_MAX = 16
BUSY_PAUSES_S = (0.005, 0.01, 0.02, 0.04, 0.08)


@dataclass(frozen=True, slots=True)
class Claim:
    """One buyer's wish. `headers` is the JSON text that travels with the reservation, or None."""

    user: str
    request_id: str | None = None
    headers: str | None = None


Reserve: TypeAlias = Callable[[str, Sequence[Claim]], Awaitable[Sequence[ReserveAnswer]]]


@dataclass(slots=True)
class _Entry:
    """A claim and who waits for its answer."""

    claim: Claim
    answer: "asyncio.Future[ReserveAnswer]"
    tries: int = 0


@dataclass(slots=True)
class _Pool:
    """Claims of one pool. A user stands in `ready` at most once and not while one is in flight."""

    ready: deque[str] = field(default_factory=deque)
    by_user: dict[str, deque[_Entry]] = field(default_factory=dict)
    calls: set["asyncio.Task[None]"] = field(default_factory=set)


class FrontDoor:
    """Groups claims per pool. One per process; waiting is bounded."""

    def __init__(self, reserve: Reserve, *, waiting_max: int) -> None:
        self._reserve = reserve
        self._waiting_max = waiting_max
        self._waiting = 0
        self._pools: dict[str, _Pool] = {}

    @property
    def waiting(self) -> int:
        """Claims without an answer."""
        return self._waiting

    async def reserve(self, pool: str, claim: Claim) -> ReserveAnswer:
        """Claim a slot; raises OverCapacity at once when too many wait, the database's errors else.

        An error means that the outcome is unknown: only a repeat with the same request id is safe.
        """
        if self._waiting >= self._waiting_max:
            raise OverCapacity
        group = self._pools.setdefault(pool, _Pool())
        if len(group.by_user.get(claim.user, ())) >= WAITING_PER_USER_MAX:
            raise OverCapacity("this user has too many claims waiting")
        entry = _Entry(claim, asyncio.get_running_loop().create_future())
        self._waiting += 1
        try:
            self._enter(pool, group, entry)
            return await entry.answer
        finally:
            self._waiting -= 1

    async def close(self) -> None:
        """Let the calls in flight end; claims still waiting get their answers too."""
        while calls := [call for pool in self._pools.values() for call in pool.calls]:
            await asyncio.wait(calls)

    def _enter(self, pool: str, group: _Pool, entry: _Entry) -> None:
        user = entry.claim.user
        line = group.by_user.get(user)
        if line is None:
            group.by_user[user] = deque((entry,))
            group.ready.append(user)
        else:
            line.append(entry)
        self._send(pool, group)

    def _send(self, pool: str, group: _Pool) -> None:
        while group.ready and len(group.calls) < CALLS_MAX:
            if group.calls and len(group.ready) < SECOND_CALL_MIN:
                return
            batch = self._take(group)
            if batch:
                call = asyncio.create_task(self._call(pool, group, batch))
                group.calls.add(call)

    def _take(self, group: _Pool) -> list[_Entry]:
        batch: list[_Entry] = []
        while group.ready and len(batch) < BATCH_MAX:
            user = group.ready.popleft()
            line = group.by_user[user]
            while line and line[0].answer.done():
                line.popleft()  # its caller has gone before it was sent: nothing to undo
            if line:
                batch.append(line.popleft())
            else:
                del group.by_user[user]
        return batch

    async def _call(self, pool: str, group: _Pool, batch: list[_Entry]) -> None:
        try:
            answers = await self._reserve(pool, [entry.claim for entry in batch])
        except Exception as error:
            for entry in batch:
                _settle(entry, copy(error))  # each waiter's traceback is its own
        else:
            for entry, answer in zip(batch, answers, strict=True):
                if isinstance(answer, Busy) and entry.tries < len(BUSY_PAUSES_S):
                    self._again(pool, entry)
                else:
                    _settle(entry, answer)
        finally:
            self._end(pool, group, batch)

    def _end(self, pool: str, group: _Pool, batch: list[_Entry]) -> None:
        current = asyncio.current_task()
        assert current is not None, "a call is a task"
        group.calls.discard(current)
        for entry in batch:
            user = entry.claim.user
            if group.by_user[user]:
                group.ready.append(user)
            else:
                del group.by_user[user]
        if group.ready:
            self._send(pool, group)
        elif not group.calls and not group.by_user:
            self._pools.pop(pool, None)

    def _again(self, pool: str, entry: _Entry) -> None:
        """Ask again in a moment: slots that others were claiming are then sold or free."""
        pause_s = BUSY_PAUSES_S[entry.tries]
        entry.tries += 1

        def enter() -> None:
            if not entry.answer.done():
                self._enter(pool, self._pools.setdefault(pool, _Pool()), entry)

        asyncio.get_running_loop().call_later(pause_s, enter)


def _settle(entry: _Entry, outcome: ReserveAnswer | Exception) -> None:
    if entry.answer.done():
        return  # its caller has gone
    if isinstance(outcome, Exception):
        entry.answer.set_exception(outcome)
    else:
        entry.answer.set_result(outcome)
