"""The outbox as a queue: the kernel's verbs over the outbox's SQL functions."""

from collections.abc import Iterable, Mapping, Sequence
from time import monotonic
from typing import assert_never
from uuid import UUID

from penstock.kernel import deaths
from penstock.kernel.connections import (
    AsyncConn,
    SyncConn,
    adapt,
    adapt_sync,
    require_transaction,
    require_transaction_sync,
)
from penstock.kernel.database import PASSING_ERRORS
from penstock.kernel.queue import Connection, Item, Outcome, Policy, Tending
from penstock.kernel.verdict import Done, Reject, Retry, Unknown
from penstock.outbox import destinations, store
from penstock.outbox.claims import Claims, lane_of
from penstock.outbox.model import QUEUE
from penstock.outbox.routes import IDLE_ROUTING_S, ROUTING_S, Route, Routing
from penstock.outbox.taking import by_number, fresh_token, runs, taken, together

ERROR_LENGTH_MAX = 2000
_NO_LANES: Mapping[str, str] = {}


class OutboxQueue:
    """Claims the events of the given topics (None: of all), or of routes and destinations.

    Every verb is one round trip. Only where events have several routes, or configured destinations,
    a claim has one more for each. `joint`: the events of a claim share one lease; not where
    handlers finish in transactions of their own, which would leave such leases behind.
    """

    name = QUEUE
    dies_at_limit = True

    def __init__(
        self,
        topics: Iterable[str] | None = None,
        *,
        routes: Sequence[Route] | None = None,
        claims: Claims | None = None,
        joint: bool = True,
    ) -> None:
        self._topics = None if topics is None else sorted(topics)
        self._routing = None if routes is None else Routing.of(routes)
        self._claims = claims
        self._joint = joint
        self._balanced_at = 0.0

    async def policy(self, conn: Connection) -> Policy:
        """The numbers this queue runs by."""
        row = await store.policy(conn)
        return Policy(
            lease_s=float(row["lease_s"]),
            max_attempts=row["max_attempts"],
            backoff_base_s=float(row["backoff_base_s"]),
            backoff_cap_s=float(row["backoff_cap_s"]),
            poll_ms=row["poll_ms"],
            notify=row["notify"],
        )

    async def claim(
        self, conn: Connection, *, limit: int, owner: UUID, skip: Sequence[str] = ()
    ) -> Sequence[Item]:
        """Lease up to `limit` ready events under a fresh token, oldest first."""
        topics, lanes, skip = await self._route(conn, limit, skip)
        items: list[Item] = []
        claims = self._claims
        if claims is not None and claims.handlers is not None:
            limit = min(limit, claims.handlers)
        if limit > 0 and (topics is None or topics):
            before = monotonic()
            token = fresh_token()
            claim = await store.claim(
                conn, limit, token, owner, topics, list(skip), joint=self._joint
            )
            if claim is not None:
                items += taken(together(claim), lanes, claim=claim, token=token, before=before)
        if claims is not None and claims.room:
            try:
                await self._claim_for(conn, claims, owner=owner, items=items)
            except PASSING_ERRORS:
                if not items:
                    raise
                # What was claimed before must not be forgotten; the next claim meets the error.
        return items

    async def _claim_for(
        self, conn: Connection, claims: Claims, *, owner: UUID, items: list[Item]
    ) -> None:
        before = monotonic()
        wanted = claims.wanted(len(items))
        if not wanted:
            return
        token = fresh_token()
        open_before = frozenset(claims.open)
        rows = await destinations.claim_for(conn, list(wanted), list(wanted.values()), token, owner)
        lanes: dict[str, str] = {}
        for row in rows:
            lanes[row["topic"]] = lane_of(row["destination"])
            if row["destination"] in open_before:
                # Or it would not have been given. One that opened meanwhile is open: the claim
                # may have looked before, and what it brought is then given back.
                claims.open.discard(row["destination"])
            _mark(claims.watched, row["destination"], on=row["watched"])
            _mark(claims.probing, row["destination"], on=row["probe"])
        if rows:
            columns = (tuple(row.values())[: store.CLAIMED_COLUMNS] for row in rows)
            items += taken(columns, lanes, claim=rows[0], token=token, before=before)

    async def _route(
        self, conn: Connection, limit: int, skip: Sequence[str]
    ) -> tuple[list[str] | None, Mapping[str, str], Sequence[str]]:
        """The topics to claim and to skip, as stored, and the lane of each."""
        routing = self._routing
        if routing is None:
            return self._topics, _NO_LANES, skip
        await _look(conn, routing, ROUTING_S)
        if routing.to_expand:
            await store.expand(conn, limit)
        return routing.topics, routing.lanes, routing.named(skip) if skip else skip

    async def finish(self, conn: Connection, outcomes: Sequence[Outcome]) -> Sequence[Item]:
        """Write outcomes where the token still matches; return the items that were refused."""
        done: list[Item] = []
        failed: list[Outcome] = []
        for outcome in outcomes:
            # Said to be finished on the user's connection: only the database knows whether it is.
            if isinstance(outcome.verdict, Done) and not outcome.item.finished_by_handler:
                done.append(outcome.item)
            else:
                failed.append(outcome)
        refused: set[int] = set()
        if done and not await _finish_joint(conn, done):
            rows = await store.finish(conn, *_keys(done, with_ids=True))
            refused.update(row["seq"] for row in rows)
        if failed:
            rows = await store.mark_failed(conn, *_failures(failed))
            refused.update(row["seq"] for row in rows)
        if not refused:
            return ()
        return [outcome.item for outcome in outcomes if outcome.item.key in refused]

    async def extend(self, conn: Connection, items: Sequence[Item]) -> Sequence[Item]:
        """Prolong the leases still held; return the items that are lost."""
        before = monotonic()
        lost_seqs, lease_s = await store.extend(conn, *_keys(items))
        lost = set(lost_seqs)
        for item in items:
            if item.key not in lost:
                item.lease.deadline = before + lease_s
        return [item for item in items if item.key in lost]

    async def release(self, conn: Connection, items: Sequence[Item]) -> int:
        """Give items back that have not started; the attempt does not count."""
        return await store.release(conn, *_keys(items))

    async def ready(self, conn: Connection) -> bool:
        """Whether a claim now might find something; if not, there is time to look at the routes."""
        if await store.ready(conn):
            return True
        if self._routing is not None:
            await _look(conn, self._routing, IDLE_ROUTING_S)
        return False

    async def tend(self, conn: Connection) -> Tending:
        """Reap, bring back due rows, sweep, keep the watermark; a no-op when not yet due."""
        row = await store.tend(conn)
        back = 0
        if self._claims is not None and monotonic() - self._balanced_at >= ROUTING_S:
            self._balanced_at = monotonic()
            back = await destinations.balance(conn)
        died = await deaths.taken(conn, QUEUE)
        return Tending(row["reaped"], row["due"] + back, row["swept"], died)


class OutboxEnding:
    """Ends events inside a transaction of the user's, on the user's connection."""

    async def finish(self, conn: AsyncConn, items: Sequence[Item]) -> None:
        """Finish the events in the open transaction; raises LeaseLost, which undoes it."""
        user = adapt(conn)
        await require_transaction(user)
        await store.finish_strict(user, [i.key for i in items], [i.lease.token for i in items])

    def finish_sync(self, conn: SyncConn, items: Sequence[Item]) -> None:
        """The same on a blocking connection."""
        user = adapt_sync(conn)
        require_transaction_sync(user)
        store.finish_strict_sync(user, [i.key for i in items], [i.lease.token for i in items])


async def _finish_joint(conn: Connection, items: Sequence[Item]) -> bool:
    """Finish by joint leases alone; false where not all could be."""
    if not all(item.lease.joint for item in items):
        return False
    return await store.finish_joint(conn, *runs(items)) == len(items)


async def _look(conn: Connection, routing: Routing, after_s: float) -> None:
    """Learn the routes anew, if the last look is so long ago."""
    now = monotonic()
    if now - routing.looked_at >= after_s:
        plain, to_expand = await store.routing(conn)
        routing.learn(plain, to_expand=to_expand)
        routing.looked_at = now


def _mark(names: set[str], name: str, *, on: bool) -> None:
    if on:
        names.add(name)
    else:
        names.discard(name)


def _keys(items: Sequence[Item], *, with_ids: bool = False) -> list[object]:
    # In one order, whoever calls: two statements over the same events do not lock each other out.
    items = sorted(items, key=by_number)
    seqs: object = [item.key for item in items]
    tokens: object = [item.lease.token for item in items]
    return [seqs, [item.id for item in items], tokens] if with_ids else [seqs, tokens]


def _failures(outcomes: Sequence[Outcome]) -> list[object]:
    outcomes = sorted(outcomes, key=lambda outcome: outcome.item.key)  # as _keys has them
    told = [_told(outcome) for outcome in outcomes]
    return [
        *_keys([outcome.item for outcome in outcomes], with_ids=True),
        [verdict for verdict, _, _ in told],
        [outcome.delay_s for outcome in outcomes],
        [_storable(code) for _, code, _ in told],
        [_storable(error) for _, _, error in told],
    ]


def _storable(text: str) -> str:
    """Text as Postgres takes it: a handler's reason may hold anything a str can."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()[:ERROR_LENGTH_MAX]


def _told(outcome: Outcome) -> tuple[str, str, str]:
    """Verdict, code and error of one outcome, in the words of the SQL function."""
    match outcome.verdict:
        case Done():
            return "check", "NOT_COMMITTED", "the handler's own transaction was not committed"
        case Retry(reason=reason, code=code):
            if outcome.item.attempt >= outcome.item.max_attempts:
                return "reject", "MAX_ATTEMPTS", f"{code}: {reason}"
            return "retry", code, reason
        case Reject(code=code, reason=reason):
            return "reject", code, reason
        case Unknown(reason=reason):
            return "unknown", "UNKNOWN", reason
        case _:
            assert_never(outcome.verdict)
