"""Ending payments and claiming the next of their participants, in one commit."""

from collections.abc import Sequence
from uuid import UUID

from penstock.kernel.database import call
from penstock.kernel.queue import Connection
from penstock.payments.model import Claimed, Ending
from penstock.payments.store import columns

_FINISH_AND_CLAIM = (
    "select ended_id, ended_state, outbox_id, instruction_id, participant_id, sequence_id,"
    " idempotency_key, rail_type, payload::text, headers::text, created_at, attempt_no, attempt,"
    " max_attempts, claimed_at, lease_token, lease_epoch, lease_expires_at, lease_s, first_sent_at"
    " from public.finish_and_claim_payments($1::uuid[], $2::uuid[], $3::text[],"
    " $4::double precision[], $5::text[], $6::text[], $7::text[], $8::text[], $9::integer[],"
    " $10::text[], $11::uuid, $12::text[], $13::text[])"
)
_FINISH_PAID_AND_CLAIM = (
    "select ended_id, outbox_id, instruction_id, participant_id, sequence_id, idempotency_key,"
    " rail_type, payload::text, headers::text, created_at, attempt_no, attempt, max_attempts,"
    " claimed_at, lease_token, lease_epoch, lease_expires_at, lease_s, first_sent_at"
    " from public.finish_paid_and_claim($1::uuid[], $2::uuid[], $3::text[], $4::text[],"
    " $5::integer[], $6::uuid, $7::text[], $8::text[])"
)


async def finish_and_claim(
    conn: Connection,
    endings: Sequence[Ending],
    *,
    participants: Sequence[str],
    owner: UUID,
    rails: Sequence[str] | None = None,
    skip: Sequence[str] = (),
) -> tuple[dict[UUID, str], tuple[Claimed, ...]]:
    """Record how dispatches ended, and lease the next payment of these participants with it."""
    served = None if rails is None else list(rails)
    rows = await call(
        conn,
        _FINISH_AND_CLAIM,
        *columns(endings),
        list(participants),
        owner,
        served,
        list(skip),
    )
    ended = {row["ended_id"]: row["ended_state"] for row in rows if row["ended_id"] is not None}
    claimed = (tuple(row.values())[2:] for row in rows if row["ended_id"] is None)
    return ended, tuple(Claimed(*values) for values in claimed)


async def finish_paid_and_claim(
    conn: Connection,
    paid: Sequence[Ending],
    *,
    owner: UUID,
    rails: Sequence[str] | None = None,
    skip: Sequence[str] = (),
) -> tuple[frozenset[UUID], tuple[Claimed, ...]]:
    """Record what was paid, and lease the next of the same participants.

    Returns what has ended; what became of anything else, `finish` says.
    """
    codes = [e.rail_code for e in paid]
    rows = await call(
        conn,
        _FINISH_PAID_AND_CLAIM,
        [e.outbox_id for e in paid],
        [e.token for e in paid],
        [e.rail_reference for e in paid],
        codes if any(codes) else None,
        [e.latency_ms for e in paid],
        owner,
        None if rails is None else list(rails),
        list(skip),
    )
    ended = frozenset(row["ended_id"] for row in rows if row["ended_id"] is not None)
    claimed = (tuple(row.values())[1:] for row in rows if row["ended_id"] is None)
    return ended, tuple(Claimed(*values) for values in claimed)
