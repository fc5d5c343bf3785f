"""The history checker: what the database and the downstream recorded must satisfy K1 to K9.

K9 (all of it without hints) is not a check of its own: the workers under test have LISTEN off and
queues do not notify by default, so what ends here ended by polling.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from uuid import UUID

import asyncpg
from tests.support.downstream import Downstream

TERMINAL = frozenset({"DELIVERED", "DEAD", "HELD", "DISCARDED", "CANCELLED"})

_EVENTS = """
select e.id, e.state, e.total_attempts, e.replay_count,
       coalesce(o.lease_epoch + j.claims, a.lease_epoch) as epoch,
       o.attempts + j.claims as attempts, a.lease_token as token
from app.outbox_all e
left join public.outbox o on o.id = e.id
left join public.outbox_archive a on a.id = e.id
-- Of an event under a joint lease the row does not tell that it was claimed.
cross join lateral (
    select (e.state = 'LEASED' and o.processing_token is null)::integer as claims) j
"""
_ENDS = "select event_id, lease_epoch, lease_token, outcome from public.outbox_attempts"
_LATE = "select item_id, lease_token, verdict from penstock.late_results"
_AUDIT = """
select operation, (row_data ->> 'id')::uuid as id from audit.audit_logs
where table_name = 'public.outbox'
"""


@dataclass(frozen=True, slots=True)
class Recorded:
    """Everything that is known at one moment, read in one snapshot."""

    events: list[asyncpg.Record]
    ends: list[asyncpg.Record]
    late: list[asyncpg.Record]
    audit: list[asyncpg.Record]
    max_attempts: int

    @classmethod
    async def read(cls, conn: "asyncpg.Connection[asyncpg.Record]") -> "Recorded":
        """Read it all; the connection must not be in a transaction."""
        async with conn.transaction(isolation="repeatable_read", readonly=True):
            return cls(
                await conn.fetch(_EVENTS),
                await conn.fetch(_ENDS),
                await conn.fetch(_LATE),
                await conn.fetch(_AUDIT),
                await conn.fetchval(
                    "select max_attempts from penstock.queue_config where queue = 'outbox'"
                ),
            )


def violations(
    found: Recorded,
    published: Collection[UUID],
    *,
    aborted: Iterable[UUID] = (),
    quiet: bool = True,
) -> list[str]:
    """What is wrong, in words; empty when nothing is."""
    return [
        *_existence(found, published, aborted),
        *_attempts(found),
        *_fencing(found),
        *_operators(found),
        *(_endings(found) if quiet else ()),
    ]


def _existence(
    found: Recorded, published: Collection[UUID], aborted: Iterable[UUID]
) -> Iterator[str]:
    there = Counter(row["id"] for row in found.events)
    for event in published:
        if there[event] != 1:
            yield f"K6/K7: {event} was committed and is there {there[event]} times"
    for event in aborted:
        if there[event]:
            yield f"K7: {event} was rolled back and is there"
    for event in there.keys() - set(published):
        yield f"K7: {event} was never published"


def _attempts(found: Recorded) -> Iterator[str]:
    ends: dict[UUID, list[int]] = defaultdict(list)
    released: Counter[UUID] = Counter()
    for row in found.ends:
        ends[row["event_id"]].append(row["lease_epoch"])
        released[row["event_id"]] += row["outcome"] == "RELEASED"
    for row in found.events:
        event, epoch = row["id"], row["epoch"]
        ended = ends[event] + ([epoch] if row["state"] == "DELIVERED" else [])
        expected = list(range(1, epoch + (row["state"] != "LEASED")))
        if sorted(ended) != expected:
            yield f"K1/K5: {event} {row['state']} has claims 1..{epoch} and ends {sorted(ended)}"
        if row["attempts"] is not None and not 0 <= row["attempts"] <= found.max_attempts:
            yield f"K4: {event} has used {row['attempts']} attempts in its cycle"
        if epoch - released[event] > found.max_attempts * (row["replay_count"] + 1):
            yield f"K4: {event} ran {epoch - released[event]} times"
        if row["total_attempts"] != epoch:
            yield f"K5: {event} counts {row['total_attempts']} attempts in {epoch} claims"


def _fencing(found: Recorded) -> Iterator[str]:
    delivered_by = {row["id"]: row["token"] for row in found.events if row["token"] is not None}
    lost = {
        (row["event_id"], row["lease_token"])
        for row in found.ends
        if row["outcome"] in ("ZOMBIE", "RELEASED")
    }
    for row in found.late:
        if row["verdict"] == "done" and delivered_by.get(row["item_id"]) == row["lease_token"]:
            yield f"K2: {row['item_id']} was delivered by a token that was refused"
        if (row["item_id"], row["lease_token"]) not in lost:
            yield f"K2: {row['item_id']} has a late result of a lease that was not lost"


def _operators(found: Recorded) -> Iterator[str]:
    acts = Counter((row["operation"], row["id"]) for row in found.audit)
    for row in found.events:
        event = row["id"]
        if acts.pop(("replay", event), 0) != row["replay_count"]:
            yield f"K8: {event} was replayed {row['replay_count']} times, not as audited"
        for operation, state in (("discard", "DISCARDED"), ("cancel", "CANCELLED")):
            if acts.pop((operation, event), 0) != (row["state"] == state):
                yield f"K8: {event} is {row['state']}, which is not what {operation} audited"
    for operation, event in acts:
        yield f"K8: {operation} of {event} is audited and did not happen"


def _endings(found: Recorded) -> Iterator[str]:
    for row in found.events:
        if row["state"] not in TERMINAL:
            yield f"K3: {row['id']} is still {row['state']}"


async def assert_history(
    conn: "asyncpg.Connection[asyncpg.Record]",
    published: Collection[UUID],
    *,
    aborted: Iterable[UUID] = (),
    quiet: bool = True,
    downstream: Downstream | None = None,
) -> None:
    """Check K1 to K8, and that the downstream was called for all that was delivered."""
    found = await Recorded.read(conn)
    wrong = violations(found, published, aborted=aborted, quiet=quiet)
    if downstream is not None:
        wrong += _calls(found, downstream)
    assert not wrong, "\n".join(wrong[:20])


def _calls(found: Recorded, downstream: Downstream) -> Iterator[str]:
    done = downstream.per_key("done")
    started = downstream.per_key("started")
    for row in found.events:
        key = str(row["id"])
        if row["state"] == "DELIVERED" and not done.pop(key, 0):
            yield f"O1: {key} is delivered and the downstream was never called"
        if started.pop(key, 0) > row["epoch"]:
            yield f"K1: {key} was started more often than it was claimed"
    for key in started:
        yield f"K7: the downstream was called for {key}, which was never published"
