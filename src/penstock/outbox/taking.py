"""Items from the rows of a claim: the part of a claim that costs something for every event."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any
from uuid import UUID, uuid4

from asyncpg.pgproto import pgproto

from penstock.kernel.lease import Lease
from penstock.kernel.queue import Item
from penstock.outbox.model import headers_of
from penstock.outbox.store import CLAIMED_COLUMNS

by_number = attrgetter("key")
_EARLIEST = datetime.min.replace(tzinfo=UTC)
_LATEST = datetime.max.replace(tzinfo=UTC)


def fresh_token() -> UUID:
    """A token of the driver's own kind, which it writes down four times as fast.

    Where leases are extended, given back or lost, it is written once for each event.
    """
    return pgproto.UUID(uuid4().bytes)


def together(row: Mapping[str, Any]) -> Iterable[Iterable[Any]]:
    """The events of a claim that came as one array for each column of `store.CLAIMED`."""
    return zip(*tuple(row.values())[:CLAIMED_COLUMNS], strict=True)


def taken(
    rows: Iterable[Iterable[Any]],
    lanes: Mapping[str, str],
    *,
    claim: Mapping[str, Any],
    token: UUID,
    before: float,
) -> list[Item]:
    """The items of one claim, whose columns are in the order of `store.CLAIMED`.

    Unpacking by position costs a third of looking up by name. What all rows have in common is in
    `claim`, and what many have is made once.
    """
    joint = claim.get("joint", False)
    expires_at, deadline = _time(claim["expires_s"]), before + claim["lease_s"]
    times: dict[float, datetime] = {}
    items: list[Item] = []
    for (
        seq,
        id_,
        topic,
        payload,
        headers,
        created_s,
        attempt,
        epoch,
        max_attempts,
        ordering_key,
        tenant,
        event_id,
        event_topic,
    ) in rows:
        items.append(
            Item(
                seq,
                id_,
                event_topic or topic,
                payload.encode(),
                headers_of(headers),
                times.get(created_s) or times.setdefault(created_s, _time(created_s)),
                attempt,
                max_attempts,
                Lease(token, epoch, expires_at, deadline, joint=joint),
                ordering_key,
                tenant,
                event_id=event_id,
                lane=lanes.get(topic, topic),
            )
        )
    return items


def runs(items: Sequence[Item]) -> list[list[Any]]:
    """Items of joint leases as runs of numbers that follow each other: tokens, first, last."""
    tokens: list[UUID] = []
    first: list[int] = []
    last: list[int] = []
    token, following = None, 0
    for item in sorted(items, key=by_number):
        if item.key == following and item.lease.token is token:
            last[-1] = following
        else:
            token = item.lease.token
            tokens.append(token)
            first.append(item.key)
            last.append(item.key)
        following = item.key + 1
    return [tokens, first, last]


def _time(seconds: float) -> datetime:
    """A moment as Python has it: Postgres also knows infinity, and years beyond 9999."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError):
        return _LATEST if seconds > 0 else _EARLIEST
