"""A replay that watches itself: a canary first, then a steady rate, stopping when it goes wrong."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol
from uuid import UUID

from penstock.cli.invocation import Invocation
from penstock.cli.output import Progress
from penstock.kernel import operations
from penstock.kernel.database import PooledConnection
from penstock.kernel.operations import DeadFilter
from penstock.kernel.queue import Connection

FAILED_SHARE_MAX = 0.02
_UNSETTLED = frozenset({"READY", "LEASED", "WAITING"})
_LOOK_EVERY_S = 0.2


class Verify(Protocol):
    """Says which items must not be replayed, because what is stored of them is not genuine."""

    async def __call__(
        self, conn: Connection, ids: Sequence[UUID], *, reason: str, operator: str
    ) -> set[UUID]:
        """The refused ones among the ids."""
        ...


@dataclass(frozen=True, slots=True)
class Replay:
    """What to replay, and how carefully."""

    queue: str
    ids: tuple[UUID, ...]
    reason: str
    operator: str
    canary: int
    rate: int
    wait_s: float
    verify: Verify | None = None


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """How it went; `failed` counts those that died again while it ran, `refused` the unverified."""

    replayed: int
    failed: int
    refused: int
    stopped: bool
    note: str
    audit_id: UUID | None


@dataclass(slots=True)
class _Tally:
    """What has been done so far."""

    done: list[UUID]
    refused: list[UUID] = field(default_factory=list)
    audit_id: UUID | None = None
    failed: int = 0

    def result(self, *, stopped: bool, note: str = "") -> ReplayResult:
        if self.refused:
            note += f"; {len(self.refused):,} left out, their stored bytes do not verify"
        return ReplayResult(
            len(self.done), self.failed, len(self.refused), stopped, note, self.audit_id
        )


async def run_replay(invocation: Invocation, work: Replay) -> ReplayResult:
    """Replay a canary and wait for it, then the rest at the rate; every batch is one commit."""
    tally = _Tally(done=[])
    canary, rest = work.ids[: work.canary], work.ids[work.canary :]
    async with invocation.connection() as conn:
        if canary:
            await _replay(conn, work, canary, tally=tally)
            if not tally.done:
                return tally.result(stopped=True, note=": nothing of the canary was replayed")
            if not await _all_succeeded(conn, tally.done, work.wait_s):
                tally.failed = await _dead_again(conn, work, tally.done)
                return tally.result(stopped=True, note=": the canary did not come through")
            invocation.out.say(f"  canary    {len(tally.done)}/{len(canary)} delivered")
        with invocation.out.progress("replay", len(rest)) as progress:
            return await _steadily(conn, work, rest, tally=tally, progress=progress)


async def _steadily(
    conn: PooledConnection, work: Replay, ids: Sequence[UUID], *, tally: _Tally, progress: Progress
) -> ReplayResult:
    """At most `rate` per second, looking back after every batch."""
    size = min(work.rate, operations.REPLAY_MAX)
    for start in range(0, len(ids), size):
        began = time.monotonic()
        batch = ids[start : start + size]
        await _replay(conn, work, batch, tally=tally)
        progress.advance(len(batch))
        tally.failed = await _dead_again(conn, work, tally.done)
        if tally.failed > max(1.0, FAILED_SHARE_MAX * len(tally.done)):
            return tally.result(stopped=True, note=f": stopped, {tally.failed} died again")
        if start + size < len(ids):
            pause_s = size / work.rate - (time.monotonic() - began)
            await asyncio.sleep(max(0.0, pause_s))
    return tally.result(stopped=False)


async def _replay(
    conn: PooledConnection, work: Replay, ids: Sequence[UUID], *, tally: _Tally
) -> None:
    """One commit: what was verified is what is replayed."""
    async with conn.transaction():
        refused: set[UUID] = set()
        if work.verify is not None:
            refused = await work.verify(conn, ids, reason=work.reason, operator=work.operator)
        genuine = [one for one in ids if one not in refused]
        audits = await operations.replay(
            conn, work.queue, genuine, reason=work.reason, operator=work.operator
        )
    tally.refused.extend(refused)
    tally.done.extend(audits)
    tally.audit_id = next(reversed(audits.values()), tally.audit_id)


async def _dead_again(conn: Connection, work: Replay, ids: Sequence[UUID]) -> int:
    wanted = DeadFilter(queue=work.queue, ids=tuple(ids))
    return len(await operations.dead_letters(conn, wanted, limit=len(ids) + 1))


async def _all_succeeded(conn: Connection, ids: Sequence[UUID], wait_s: float) -> bool:
    """Wait until every item has ended; True if none of them is dead or held again."""
    deadline = time.monotonic() + wait_s
    while True:
        states = [await _state(conn, item) for item in ids]
        if not any(state in _UNSETTLED for state in states):
            return not any(state in {"DEAD", "HELD"} for state in states)
        if time.monotonic() >= deadline:
            return False
        await asyncio.sleep(_LOOK_EVERY_S)


async def _state(conn: Connection, item: UUID) -> str:
    told = await operations.story(conn, item, payload_reason=None, operator="")
    return str(told.get("state"))
