"""The front door: claims that arrive together go to the database together, pool by pool.

A user stands in a call at most once and not while one is in flight, so that a crowd of one user's
claims never waits for itself inside the database.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import msgspec

from penstock.intake.answers import Busy, ReserveAnswer
from penstock.kernel.gathering import Asker, Gathering, Waiter
from penstock.kernel.http_errors import OverCapacity

GROUP_MAX = 1000
CALLS_MAX = 2
SECOND_CALL_MIN = 64
WAITING_PER_USER_MAX = 16
BUSY_PAUSES_S = (0.005, 0.01, 0.02, 0.04, 0.08)


class Claim(msgspec.Struct, frozen=True):
    """One buyer's wish. `headers` is the JSON text that travels with the reservation, or None."""

    user: str
    request_id: str | None = None
    headers: str | None = None


Reserve: TypeAlias = Callable[[str, Sequence[Claim]], Awaitable[Sequence[ReserveAnswer]]]
_Waiter: TypeAlias = Waiter[Claim, ReserveAnswer]


class _UserLine:
    """Claims of one pool. A user is in `ready` at most once and not while one is in flight."""

    def __init__(self, group_max: int, answered: Callable[[int], None]) -> None:
        self._group_max = group_max
        self._answered = answered
        self._ready: deque[str] = deque()
        self._by_user: dict[str, deque[_Waiter]] = {}

    def __len__(self) -> int:
        return len(self._ready)

    def waiting_of(self, user: str) -> int:
        """How many claims of a user have not been sent."""
        return len(self._by_user.get(user, ()))

    def add(self, waiter: _Waiter) -> None:
        """Behind the user's other claims, if there are any."""
        user = waiter.item.user
        line = self._by_user.get(user)
        if line is None:
            self._by_user[user] = deque((waiter,))
            self._ready.append(user)
        else:
            line.append(waiter)

    def take(self) -> list[_Waiter]:
        """One claim of each user who is ready."""
        batch: list[_Waiter] = []
        while self._ready and len(batch) < self._group_max:
            batch.append(self._by_user[self._ready.popleft()].popleft())
        return batch

    def returned(self, batch: Sequence[_Waiter]) -> None:
        """The users of a call may go again."""
        self._answered(len(batch))
        for waiter in batch:
            user = waiter.item.user
            if self._by_user[user]:
                self._ready.append(user)
            else:
                del self._by_user[user]


@dataclass(slots=True)
class _Pool:
    """One pool's line and the calls for it."""

    line: _UserLine
    gathering: Gathering[Claim, ReserveAnswer]


class FrontDoor:
    """Groups claims per pool. One per process; waiting is bounded."""

    def __init__(
        self,
        reserve: Reserve,
        *,
        waiting_max: int,
        group_max: int = GROUP_MAX,
        calls_max: int = CALLS_MAX,
    ) -> None:
        self._reserve = reserve
        self._waiting_max = waiting_max
        self._group_max = group_max
        self._calls_max = calls_max
        self._waiting = 0
        self._pools: dict[str, _Pool] = {}

    @property
    def waiting(self) -> int:
        """Claims without an answer."""
        return self._waiting

    async def reserve(self, pool: str, claim: Claim) -> ReserveAnswer:
        """Claim a slot; raises OverCapacity at once when too many wait, the database's errors else.

        An error means that the outcome is unknown: only a repeat with the same request id is safe.
        Where others are claiming the slots it asks again in a moment: sold then, or free.
        """
        for pause_s in BUSY_PAUSES_S:
            answer = await self._ask(pool, claim)
            if not isinstance(answer, Busy):
                return answer
            await self._pause(pause_s)
        return await self._ask(pool, claim)

    def put(self, pool: str, claim: Claim, asker: Asker[ReserveAnswer]) -> None:
        """The same, once and without waiting: the answer is told to `asker`, and may be Busy."""
        if self._waiting >= self._waiting_max:
            raise OverCapacity
        group = self._pools.get(pool)
        if group is None:
            group = self._group_of(pool)
        elif group.line.waiting_of(claim.user) >= WAITING_PER_USER_MAX:
            raise OverCapacity("this user has too many claims waiting")
        self._waiting += 1
        group.gathering.put(claim, asker)

    def _ask(self, pool: str, claim: Claim) -> "asyncio.Future[ReserveAnswer]":
        answer: asyncio.Future[ReserveAnswer] = asyncio.get_running_loop().create_future()
        self.put(pool, claim, answer)
        return answer

    async def _pause(self, pause_s: float) -> None:
        self._waiting += 1  # whoever pauses has no answer either
        try:
            await asyncio.sleep(pause_s)
        finally:
            self._waiting -= 1

    def _answered(self, count: int) -> None:
        self._waiting -= count

    async def close(self) -> None:
        """Let the calls in flight end; claims still waiting get their answers too."""
        while self._pools:
            pool, group = next(iter(self._pools.items()))
            await group.gathering.close()
            self._pools.pop(pool, None)

    def _group_of(self, pool: str) -> _Pool:
        line = _UserLine(self._group_max, self._answered)
        gathering = Gathering(
            partial(self._reserve, pool),
            line,
            calls_max=self._calls_max,
            second_call_min=min(SECOND_CALL_MIN, self._group_max),
            # Callers choose the names of pools: none is remembered without need, also not where
            # every caller left before the answer came.
            rested=partial(self._pools.pop, pool, None),
        )
        group = self._pools[pool] = _Pool(line, gathering)
        return group
