"""Payments as a queue: the kernel's verbs over the SQL functions of payments.

The next payment of each participant is claimed, going round the participants: where the last claim
ended is remembered here, so that nobody waits because others have much to send.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from time import monotonic
from typing import assert_never, cast
from uuid import UUID

import msgspec

from penstock.kernel import deaths
from penstock.kernel.events import AttemptsRecorded, Events, ItemDied, PaymentLate
from penstock.kernel.lease import Lease
from penstock.kernel.queue import Connection, Item, Outcome, Policy, Tending
from penstock.kernel.verdict import Done, Reject, Retry, Unknown
from penstock.payments import store, succession
from penstock.payments.model import (
    CHANNEL,
    QUEUE,
    REFERENCE_LENGTH_MAX,
    AttemptState,
    Claim,
    Claimed,
    Ending,
    EndState,
    storable,
)

WALKS_MAX = 25
# While what ends is followed by its participant's next, going round only finds newcomers: it may
# take a tenth of the time, and they wait no longer than this.
ROUND_SHARE = 0.1
ROUND_WAIT_MAX_S = 0.25
LATE = "LATE"
REFUSED = "REFUSED"


class Payment(Item):
    """A claimed payment, and what its rail answered."""

    claimed: Claimed | None = None
    reference: str | None = None
    rail_code: str | None = None
    latency_ms: int | None = None

    @property
    def claim(self) -> Claimed:
        """The claim that it came with."""
        assert self.claimed is not None, "a payment comes from a claim"
        return self.claimed


class PaymentsQueue:
    """Claims payments of the given rails; every verb is one round trip."""

    name = QUEUE
    tells_deaths = True
    channel = CHANNEL

    def __init__(self, rails: Iterable[str], events: Events) -> None:
        self._rails = list(rails)
        self._events = events
        self._cursor = ""
        self._nothing_left = False
        self._all_served = False
        self._followed = False
        self._round_at = 0.0

    async def policy(self, conn: Connection) -> Policy:
        """The numbers this queue runs by; a participant's next payment waits for nothing else."""
        row = await store.policy(conn)
        return Policy(
            lease_s=float(row["lease_s"]),
            max_attempts=row["max_attempts"],
            backoff_base_s=float(row["backoff_base_s"]),
            backoff_cap_s=float(row["backoff_cap_s"]),
            poll_ms=row["poll_ms"],
            notify=row["notify"],
            successive=True,
            flush_age_s=0.0,
        )

    async def claim(
        self, conn: Connection, *, limit: int, owner: UUID, skip: Sequence[str] = ()
    ) -> Sequence[Item]:
        """Lease the next payment of up to `limit` participants; rails in `skip` are left alone.

        Once all that can be had was had, and while whatever ends is followed by the next of its
        participant, calls ask nothing for a while: they would come back empty.
        """
        if self._nothing_left and monotonic() < self._round_at:
            return ()
        self._nothing_left = False
        began = monotonic()
        for _ in range(WALKS_MAX):
            before = monotonic()
            after = self._cursor
            found = await store.claim(
                conn, limit=limit, owner=owner, after=after, rails=self._rails, skip=skip
            )
            self._cursor = found.cursor
            self._all_served = found.idle or (
                len(found.payments) < limit and _went_round(found, after)
            )
            if found.payments or found.idle:
                self._look_again_later(began, idle=found.idle)
                if found.payments:
                    self._recorded(AttemptState.DISPATCHING, len(found.payments))
                return [_payment(claimed, before) for claimed in found.payments]
        return ()

    def _look_again_later(self, began: float, *, idle: bool) -> None:
        """After a claim: whether the next may be left out, and until when."""
        self._nothing_left = self._all_served and (self._followed or not idle)
        self._followed = False
        took_s = monotonic() - began
        self._round_at = began + min(took_s / ROUND_SHARE, ROUND_WAIT_MAX_S)

    async def finish(self, conn: Connection, outcomes: Sequence[Outcome]) -> Sequence[Item]:
        """Record how dispatches ended; return those that came too late.

        A success that came too late is recorded all the same: money has moved.
        """
        self._nothing_left = False
        refused: list[Item] = []
        for each in _rounds(outcomes):
            ended = await store.finish(conn, [_ending(outcome) for outcome in each])
            refused += self._refused(each, ended)
        return refused

    async def finish_and_claim(
        self, conn: Connection, outcomes: Sequence[Outcome], *, owner: UUID, skip: Sequence[str]
    ) -> tuple[Sequence[Item], Sequence[Item]]:
        """Finish, and lease the next payments of the same participants in the same commit.

        Only while all participants who can be served are: else they would keep out the others.
        """
        first, *more = _rounds(outcomes)
        if not self._all_served or more:
            return await self.finish(conn, outcomes), ()
        paid = [outcome for outcome in first if isinstance(outcome.verdict, Done)]
        if not paid:
            return await self._judge_and_claim(conn, first, owner=owner, skip=skip)
        refused: list[Item] = []
        if len(paid) < len(first):
            # Before the others claim anything: should this fail, no claim is lost by it.
            others = [outcome for outcome in first if not isinstance(outcome.verdict, Done)]
            refused += await self.finish(conn, others)
        before = monotonic()
        ended, claimed = await succession.finish_paid_and_claim(
            conn,
            [_ending(outcome) for outcome in paid],
            owner=owner,
            rails=self._rails,
            skip=skip,
        )
        if ended:
            self._recorded(AttemptState.DISPATCHED, len(ended))
        if len(ended) < len(paid):
            left = [outcome for outcome in paid if outcome.item.id not in ended]
            refused += await self.finish(conn, left)
        return refused, self._taken(claimed, before, len(first))

    async def _judge_and_claim(
        self, conn: Connection, outcomes: Sequence[Outcome], *, owner: UUID, skip: Sequence[str]
    ) -> tuple[Sequence[Item], Sequence[Item]]:
        before = monotonic()
        ended, claimed = await succession.finish_and_claim(
            conn,
            [_ending(outcome) for outcome in outcomes],
            participants=[cast(Payment, outcome.item).claim.participant_id for outcome in outcomes],
            owner=owner,
            rails=self._rails,
            skip=skip,
        )
        return self._refused(outcomes, ended), self._taken(claimed, before, len(outcomes))

    def _taken(self, claimed: Sequence[Claimed], before: float, ended: int) -> Sequence[Item]:
        """What was claimed where so many have ended."""
        if len(claimed) < ended:
            self._nothing_left = False
        if claimed:
            self._followed = True
            self._recorded(AttemptState.DISPATCHING, len(claimed))
        return [_payment(each, before) for each in claimed]

    def _refused(self, outcomes: Sequence[Outcome], ended: Mapping[UUID, str]) -> list[Item]:
        """Those that the database did not take; what it recorded is told."""
        refused: list[Item] = []
        for outcome in outcomes:
            item = outcome.item
            state = ended.get(item.id, REFUSED)
            if state == LATE:
                self._events.emit(PaymentLate(item.id, item.topic, item.attempt))
            elif state == AttemptState.FAILED:
                verdict = outcome.verdict
                code = verdict.code if isinstance(verdict, Reject) else "MAX_ATTEMPTS"
                self._events.emit(ItemDied(QUEUE, item.topic, item.id, item.attempt, code))
            if state in (LATE, REFUSED):
                refused.append(item)
        for state, count in Counter(ended.values()).items():
            if state not in (LATE, REFUSED):
                self._recorded(state, count)
        return refused

    async def extend(self, conn: Connection, items: Sequence[Item]) -> Sequence[Item]:
        """Prolong the leases still held; return the payments that are lost."""
        before = monotonic()
        newest = newest_claims([cast(Payment, item).claim for item in items])
        gone = await store.extend(conn, list(newest.values()))
        lost: list[Item] = []
        for item in items:
            claim = cast(Payment, item).claim
            if item.id in gone or newest[item.id] is not claim:
                lost.append(item)
            else:
                item.lease.deadline = max(item.lease.deadline, before + claim.lease_s)
        return lost

    async def release(self, conn: Connection, items: Sequence[Item]) -> int:
        """Give payments back that were not sent; the attempt does not count."""
        self._nothing_left = False
        return await store.release(conn, [cast(Payment, item).claim for item in items])

    async def ready(self, conn: Connection) -> bool:
        """Whether a payment is due; it may still have to wait for its turn."""
        return await store.ready(conn)

    async def tend(self, conn: Connection) -> Tending:
        """Tell who died: ended leases are a scheduled job's, and what is due needs no bringing."""
        return Tending(deaths=await deaths.taken(conn, QUEUE))

    async def reap(self, conn: Connection) -> int:
        """Deal with ended leases; returns how many payments were sent back to pending."""
        states = Counter((await store.reap(conn)).values())
        for state, count in states.items():
            self._recorded(state, count)
        return states[AttemptState.ZOMBIE_REQUEUE.value]

    def _recorded(self, state: str, count: int) -> None:
        if self._events.active:
            self._events.emit(AttemptsRecorded(QUEUE, str(state), count))


def newest_claims(claims: Iterable[Claimed]) -> dict[UUID, Claimed]:
    """The last claim of each payment: the only one that may still hold its lease."""
    found: dict[UUID, Claimed] = {}
    for claimed in claims:
        known = found.get(claimed.outbox_id)
        if known is None or known.attempt_no < claimed.attempt_no:
            found[claimed.outbox_id] = claimed
    return found


def _rounds(outcomes: Sequence[Outcome]) -> list[list[Outcome]]:
    """The outcomes, no payment twice in one round: the database answers by payment.

    A payment can be here twice if its lease ran out unnoticed and this process claimed it again.
    """
    if len({outcome.item.id for outcome in outcomes}) == len(outcomes):
        return [list(outcomes)]
    rounds: list[list[Outcome]] = []
    seen: Counter[UUID] = Counter()
    for outcome in outcomes:
        at = seen[outcome.item.id]
        seen[outcome.item.id] += 1
        if at == len(rounds):
            rounds.append([])
        rounds[at].append(outcome)
    return rounds


def _went_round(found: Claim, after: str) -> bool:
    """Whether a claim that was not filled has looked at every participant.

    It has if it began at the first. One that finds nothing after `after` begins again there; should
    the database sort names otherwise than we do, a guess too many costs one poll.
    """
    return not after or any(claimed.participant_id <= after for claimed in found.payments)


def _payment(claimed: Claimed, before: float) -> Payment:
    return Payment(
        key=claimed.outbox_id.int,
        id=claimed.outbox_id,
        topic=claimed.rail_type,
        payload=claimed.payload.encode(),
        headers=_headers(claimed.headers),
        created_at=claimed.created_at,
        attempt=claimed.attempt,
        max_attempts=claimed.max_attempts,
        lease=Lease(
            claimed.lease_token,
            claimed.lease_epoch,
            claimed.lease_expires_at,
            before + claimed.lease_s,
        ),
        ordering_key=claimed.participant_id,
        claimed=claimed,
    )


def _headers(raw: str) -> dict[str, str]:
    if raw == "{}":
        return {}
    kept: dict[str, object] = msgspec.json.decode(raw)
    return {name: value if isinstance(value, str) else str(value) for name, value in kept.items()}


def _ending(outcome: Outcome) -> Ending:
    payment = cast(Payment, outcome.item)
    state, code, reason = _told(outcome)
    # Unless the rail asked for a time, an unknown outcome waits as long as the policy says.
    delay_s = None if isinstance(outcome.verdict, Unknown) else outcome.delay_s
    return Ending(
        payment.id,
        payment.lease.token,
        state,
        delay_s=delay_s,
        rail_reference=storable(payment.reference, REFERENCE_LENGTH_MAX),
        rail_code=storable(payment.rail_code),
        error_code=storable(code),
        error_message=storable(reason, 2000),
        latency_ms=payment.latency_ms,
    )


def _told(outcome: Outcome) -> tuple[EndState, str | None, str | None]:
    match outcome.verdict:
        case Done():
            return EndState.DISPATCHED, None, None
        case Retry(reason=reason, code=code):
            return EndState.RETRYABLE, code, reason
        case Reject(code=code, reason=reason):
            return EndState.FAILED, code, reason
        case Unknown(reason=reason, code=code):
            return EndState.UNKNOWN, code, reason
        case _:
            assert_never(outcome.verdict)
