"""One call per SQL function of payments. Nothing here decides anything.

Calls that may run on the user's connection pass text and cast it: no codec of theirs matters.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from penstock.kernel.connections import SyncConnection
from penstock.kernel.database import call
from penstock.kernel.queue import Connection
from penstock.payments.model import (
    BrokenLink,
    Claim,
    Claimed,
    Ending,
    Enqueued,
    Held,
    NewPayment,
    PaymentState,
    Permit,
    RailPolicy,
    Resolution,
    Violation,
)

EVER = datetime.min.replace(tzinfo=UTC)
_ENQUEUE = (
    "select outbox_id::text, sequence_id, created_at, state, is_new"
    " from public.enqueue_payment_outbox($1::text, $2::text, $3::text, $4::text,"
    " $5::text::jsonb, $6::text::jsonb)"
)
_ENQUEUE_MANY = (
    "select outbox_id::text, sequence_id, created_at, state, is_new"
    " from public.enqueue_payment_outbox_batch($1::text[], $2::text[], $3::text[], $4::text[],"
    " $5::text[]::jsonb[], $6::text::jsonb)"
    " order by ordinal"
)
_CLAIM = (
    "select outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type,"
    " payload::text, headers::text, created_at, attempt_no, attempt, max_attempts, claimed_at,"
    " lease_token, lease_epoch, lease_expires_at, lease_s, first_sent_at, cursor_at"
    " from public.claim_payment_outbox($1::integer, $2::uuid, $3::text, $4::text[], $5::text[])"
)
_MARK_SENT = (
    "select outbox_id, lease_expires_at, lease_s"
    " from public.mark_payment_sent($1::uuid[], $2::uuid[])"
)
_EXTEND = "select outbox_id from public.extend_payment_leases($1::uuid[], $2::uuid[])"
_FINISH = (
    "select outbox_id, state"
    " from public.finish_payment_attempts($1::uuid[], $2::uuid[], $3::text[],"
    " $4::double precision[], $5::text[], $6::text[], $7::text[], $8::text[], $9::integer[])"
)
_LATE = (
    "select public.record_late_success($1::uuid, $2::uuid, $3::text, $4::text, $5::integer)"
    " as recorded"
)
_RELEASE = "select public.release_payment_outbox($1::uuid[], $2::uuid[]) as count"
_REAP = "select outbox_id, state from public.reap_payment_outbox($1::integer)"
_HELD = (
    "select outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type,"
    " payload::text, headers::text, attempt_no, held_at, first_sent_at, error_code"
    " from public.payment_held($1::integer, $2::text[], $3::timestamptz, $4::uuid)"
)
_RESOLVE_BY_STATUS = (
    "select public.resolve_payment_by_status($1::uuid, $2::text, $3::text, $4::text) as resolved"
)
_RESOLVE = (
    "select public.resolve_payment($1::text::uuid, $2::text, $3::text, $4::text, $5::text)::text"
    " as audit_id"
)
_RAILS = (
    "select r.rail_type, r.idempotent, extract(epoch from r.idempotency_window) as window_s,"
    " r.timeout_ms, r.max_concurrency, r.status_query, r.on_failed,"
    " array(select c.code from public.payment_rail_codes c"
    " where c.rail_type = r.rail_type order by c.code) as codes,"
    " array(select c.class from public.payment_rail_codes c"
    " where c.rail_type = r.rail_type order by c.code) as classes"
    " from public.payment_rails r order by r.rail_type"
)


async def enqueue(conn: Connection, payment: NewPayment, headers: str = "{}") -> Enqueued:
    """Enqueue one payment in the caller's transaction; a known key returns what it has."""
    rows = await call(conn, _ENQUEUE, *_columns_of(payment), headers)
    return _enqueued(rows[0])


def enqueue_sync(conn: SyncConnection, payment: NewPayment, headers: str = "{}") -> Enqueued:
    """The same on a blocking connection."""
    return _enqueued(conn.fetch(_ENQUEUE, *_columns_of(payment), headers)[0])


def _columns_of(payment: NewPayment) -> tuple[str, ...]:
    return (
        payment.instruction_id,
        payment.participant_id,
        payment.idempotency_key,
        payment.rail_type,
        payment.payload,
    )


async def enqueue_many(
    conn: Connection, payments: Sequence[NewPayment], headers: str = "{}"
) -> list[Enqueued]:
    """Enqueue up to 1000 payments, all or none, answered in the order given."""
    rows = await call(
        conn,
        _ENQUEUE_MANY,
        [p.instruction_id for p in payments],
        [p.participant_id for p in payments],
        [p.idempotency_key for p in payments],
        [p.rail_type for p in payments],
        [p.payload for p in payments],
        headers,
    )
    return [_enqueued(row) for row in rows]


def _enqueued(row: Mapping[str, Any]) -> Enqueued:
    return Enqueued(
        UUID(row["outbox_id"]),
        row["sequence_id"],
        row["created_at"],
        PaymentState(row["state"]),
        row["is_new"],
    )


async def policy(conn: Connection) -> Mapping[str, Any]:
    """The queue's row of numbers."""
    rows = await call(conn, "select * from penstock.policy('payments')")
    return rows[0]


async def rails(conn: Connection) -> list[RailPolicy]:
    """The policy of every rail that has a row."""
    return [
        RailPolicy(
            row["rail_type"],
            row["idempotent"],
            None if row["window_s"] is None else float(row["window_s"]),
            row["timeout_ms"] / 1000,
            row["max_concurrency"],
            row["status_query"],
            row["on_failed"],
            dict(zip(row["codes"], row["classes"], strict=True)),
        )
        for row in await call(conn, _RAILS)
    ]


async def problem(conn: Connection, rail_type: str, payload: str) -> str | None:
    """What keeps a payload from being dispatched; None if nothing does."""
    query = "select public.payment_problem($1::text, $2::text::jsonb) as problem"
    rows = await call(conn, query, rail_type, payload)
    found: str | None = rows[0]["problem"]
    return found


async def claim(
    conn: Connection,
    *,
    limit: int,
    owner: UUID,
    after: str = "",
    rails: Sequence[str] | None = None,
    skip: Sequence[str] = (),
) -> Claim:
    """Lease the next payment of up to `limit` participants, going on after `after`."""
    served = None if rails is None else list(rails)
    rows = await call(conn, _CLAIM, limit, owner, after, served, list(skip))
    if not rows:
        return Claim((), "", idle=True)
    cursor: str = rows[0]["cursor_at"] or ""
    if rows[0]["outbox_id"] is None:
        return Claim((), cursor, idle=False)
    return Claim(tuple(Claimed(*tuple(row.values())[:-1]) for row in rows), cursor, idle=False)


async def mark_sent(conn: Connection, payments: Sequence[Claimed]) -> dict[UUID, Permit]:
    """The last look before sending: permits by payment; what is missing must not be sent."""
    rows = await call(conn, _MARK_SENT, *_keys(payments))
    return {row["outbox_id"]: Permit(*row.values()) for row in rows}


async def extend(conn: Connection, payments: Sequence[Claimed]) -> frozenset[UUID]:
    """Prolong leases; returns the payments that are lost."""
    rows = await call(conn, _EXTEND, *_keys(payments))
    return frozenset(row["outbox_id"] for row in rows)


async def finish(conn: Connection, endings: Sequence[Ending]) -> dict[UUID, str]:
    """Record how dispatches ended; returns the state of each, LATE or REFUSED."""
    rows = await call(conn, _FINISH, *columns(endings))
    return {row["outbox_id"]: row["state"] for row in rows}


def columns(endings: Sequence[Ending]) -> tuple[list[object], ...]:
    """Endings as the arguments of the functions that record them."""
    return (
        [e.outbox_id for e in endings],
        [e.token for e in endings],
        [e.state.value for e in endings],
        [e.delay_s for e in endings],
        [e.rail_reference for e in endings],
        [e.rail_code for e in endings],
        [e.error_code for e in endings],
        [e.error_message for e in endings],
        [e.latency_ms for e in endings],
    )


async def record_late_success(
    conn: Connection, outbox_id: UUID, token: UUID, *, reference: str | None, code: str | None
) -> str:
    """Record a success whose lease was lost: RECORDED, FLAGGED or KNOWN."""
    rows = await call(conn, _LATE, outbox_id, token, reference, code, None)
    recorded: str = rows[0]["recorded"]
    return recorded


async def release(conn: Connection, payments: Sequence[Claimed]) -> int:
    """Give payments back that were not sent; returns how many."""
    rows = await call(conn, _RELEASE, *_keys(payments))
    return int(rows[0]["count"])


async def reap(conn: Connection, limit: int = 1000) -> dict[UUID, str]:
    """Deal with ended leases; returns what became of each payment."""
    rows = await call(conn, _REAP, limit)
    return {row["outbox_id"]: row["state"] for row in rows}


async def ready(conn: Connection) -> bool:
    """Whether a payment is due; it may still have to wait for its turn."""
    rows = await call(conn, "select public.payment_ready() as ready")
    return bool(rows[0]["ready"])


async def held(
    conn: Connection, limit: int = 100, *, rails: Iterable[str], after: Held | None = None
) -> list[Held]:
    """Held payments whose rail can be asked what became of them, oldest first."""
    place = (EVER, None) if after is None else (after.held_at, after.outbox_id)
    return [Held(*row.values()) for row in await call(conn, _HELD, limit, list(rails), *place)]


async def resolve_by_status(
    conn: Connection,
    outbox_id: UUID,
    resolution: Resolution,
    *,
    reference: str | None = None,
    code: str | None = None,
) -> bool:
    """Resolve a held payment by what its rail answered; false if it is not to be resolved so."""
    rows = await call(conn, _RESOLVE_BY_STATUS, outbox_id, resolution, reference, code)
    return bool(rows[0]["resolved"])


async def partitions(conn: Connection) -> None:
    """Make the partitions of the months ahead."""
    await call(conn, "select public.payment_partitions()")


async def extend_chain(conn: Connection, limit: int) -> int:
    """Link up to `limit` of the attempts that have no link yet; returns how many."""
    rows = await call(conn, "select public.extend_payment_chain($1::integer) as count", limit)
    return int(rows[0]["count"])


async def verify_chain(conn: Connection, participant_id: str | None = None) -> list[BrokenLink]:
    """The first broken link of each chain; none means they are whole."""
    query = (
        "select participant_id, link_no, attempt_id, problem"
        " from public.verify_payment_chain($1::text)"
    )
    return [BrokenLink(*row.values()) for row in await call(conn, query, participant_id)]


async def prove(conn: Connection) -> list[Violation]:
    """What contradicts the invariants of payments; nothing means that they hold."""
    query = "select invariant, participant_id, outbox_id, detail from public.payment_prove()"
    return [Violation(*row.values()) for row in await call(conn, query)]


async def cancel(
    conn: Connection, outbox_id: UUID, *, reason: str, operator: str | None = None
) -> bool:
    """Withdraw a payment that was never sent; false if it was, or is in flight."""
    query = "select public.cancel_payment($1::text::uuid, $2::text, $3::text) as cancelled"
    rows = await call(conn, query, str(outbox_id), reason, operator)
    return bool(rows[0]["cancelled"])


async def hold(
    conn: Connection, outbox_id: UUID, *, reason: str, operator: str | None = None
) -> UUID:
    """Stop an open payment until it is resolved; returns the id of the audit row."""
    query = "select public.hold_payment($1::text::uuid, $2::text, $3::text)::text as audit_id"
    rows = await call(conn, query, str(outbox_id), reason, operator)
    return UUID(rows[0]["audit_id"])


async def resolve(
    conn: Connection,
    outbox_id: UUID,
    resolution: Resolution,
    *,
    reason: str,
    operator: str | None = None,
    reference: str | None = None,
) -> UUID:
    """Say what became of a held or failed payment; returns the id of the audit row."""
    rows = await call(conn, _RESOLVE, str(outbox_id), resolution, reason, operator, reference)
    return UUID(rows[0]["audit_id"])


async def approve(
    conn: Connection, outbox_id: UUID, *, reason: str, operator: str | None = None
) -> UUID:
    """Let another login replay or resolve this payment; returns the id of the audit row."""
    query = "select public.approve_payment($1::text::uuid, $2::text, $3::text)::text as audit_id"
    rows = await call(conn, query, str(outbox_id), reason, operator)
    return UUID(rows[0]["audit_id"])


async def replay(
    conn: Connection, outbox_id: UUID, *, reason: str, operator: str | None = None
) -> UUID:
    """Give a failed payment a new cycle of attempts; returns the id of the audit row."""
    query = "select public.replay_payment($1::text::uuid, $2::text, $3::text)::text as audit_id"
    rows = await call(conn, query, str(outbox_id), operator, reason)
    return UUID(rows[0]["audit_id"])


async def put_rail(
    conn: Connection, rail_type: str, values: str, *, reason: str, operator: str | None = None
) -> None:
    """Set the policy of one rail; `values` is JSON text and may hold `codes`."""
    query = "select public.put_payment_rail($1::text, $2::text::jsonb, $3::text, $4::text)"
    await call(conn, query, rail_type, values, reason, operator)


async def put_policy(
    conn: Connection, values: str, *, reason: str, operator: str | None = None
) -> None:
    """Set switches of the product; `values` is JSON text."""
    query = "select public.put_payment_policy($1::text::jsonb, $2::text, $3::text)"
    await call(conn, query, values, reason, operator)


async def story(conn: Connection, outbox_id: UUID) -> str:
    """Everything known about one payment but its payload, as JSON text; raises NotFound."""
    query = "select penstock.story($1::text::uuid)::text as story"
    rows = await call(conn, query, str(outbox_id))
    found: str = rows[0]["story"]
    return found


def _keys(payments: Sequence[Claimed]) -> tuple[list[UUID], list[UUID]]:
    return [p.outbox_id for p in payments], [p.lease_token for p in payments]
