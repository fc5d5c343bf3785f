"""One call per SQL function of the engine's database. Nothing here decides anything."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from penstock.intake.answers import (
    BUSY,
    LIMIT_REACHED,
    NOT_OPEN,
    SOLD_OUT,
    ReservationState,
    ReserveAnswer,
    Reserved,
    State,
)
from penstock.intake.groups import Claim
from penstock.kernel.database import PooledConnection, call
from penstock.kernel.queue import Connection

Rows = Sequence[Mapping[str, Any]]

_RESERVE = (
    "select ordinal, outcome, resource_id, reservation_id"
    " from public.intake_reserve($1::text, $2::text[], $3::text[], $4::jsonb[])"
)
_STATUS = (
    "select reservation_id, resource_id, pool_id, state, locked_at, hold_expires_at, consumed_at,"
    " user_id from public.intake_status($1::uuid)"
)
_CLAIM = (
    "select msg_id, read_ct, enqueued_at, vt, message::text, headers::text, pool_id, resource_id,"
    " user_id, reservation_id, slot, validated, commit_started, exhausted, hold_over, configured,"
    " max_retries, lease_s, validation_webhook_url, commit_rpc_name, commit_webhook_url"
    " from public.intake_claim($1::int)"
)
_COMPLETE = (
    "select msg_id, outcome from public.intake_complete($1::bigint[], $2::uuid[], $3::uuid[])"
)
_RETRY = (
    "select intake_retry as msg_id from public.intake_retry($1::bigint[], $2::int[],"
    " $3::double precision[], $4::text[], $5::text[])"
)
_REJECT = (
    "select msg_id, dead_id from public.intake_reject($1::bigint[], $2::int[], $3::text[],"
    " $4::text[])"
)
_RELEASE = (
    "select resource_id, outcome from public.intake_release($1::uuid[], $2::uuid[], $3::text,"
    " $4::uuid[], $5::bigint[])"
)
_EXTEND = "select msg_id, vt from public.intake_extend($1::bigint[], $2::int[], $3::int)"
_GIVE_BACK = (
    "select count(*) as count from public.intake_give_back($1::bigint[], $2::int[],"
    " $3::timestamptz[])"
)
_BEGIN = "select intake_begin_commit as id from public.intake_begin_commit($1::uuid[], $2::uuid[])"
_SEND = "select public.intake_begin_send($1::uuid, $2::uuid) as outcome"
_VALIDATED = "select intake_validated as id from public.intake_validated($1::uuid[], $2::uuid[])"
_RECONCILE = "select resource_id, outcome from public.intake_reconcile($1::jsonb)"
_POLICY = (
    "select p.lease_s, p.max_attempts, p.backoff_base_s, p.backoff_cap_s, p.poll_ms, p.notify,"
    " (select min(c.visibility_timeout_sec) from public.engine_config c) as lease_least_s"
    " from penstock.policy('intake') p"
)
_LIST = (
    "select msg_id, id, pool_id, resource_id, original_msg_id, final_read_ct, replay_count,"
    " error_code, error, enqueued_at, routed_to_dlq_at, commit_started"
    " from public.intake_dlq_list($1::text, $2::bigint, $3::int)"
)
_ONE = (
    "select d.id, d.resource_id, c.commit_webhook_url is not null as by_webhook"
    " from public.intake_dlq_list(null, $1::bigint, 1) d"
    " left join public.engine_config c on c.pool_id = d.pool_id where d.msg_id = $1::bigint + 1"
)
_REPLAY = (
    "select msg_id, outcome, new_msg_id, audit_id"
    " from public.intake_replay($1::bigint[], $2::text, $3::text)"
)
_DISCARD = (
    "select msg_id, outcome, offered_id, audit_id"
    " from public.intake_discard($1::bigint[], $2::text, $3::text, $4::uuid[])"
)

_OUTCOMES: dict[str, ReserveAnswer] = {
    "sold_out": SOLD_OUT,
    "busy": BUSY,
    "limit_reached": LIMIT_REACHED,
    "not_open": NOT_OPEN,
}


async def reserve(conn: Connection, pool: str, claims: Sequence[Claim]) -> Sequence[ReserveAnswer]:
    """Claim slots for many users in one transaction; one answer each, in order."""
    rows = await call(
        conn,
        _RESERVE,
        pool,
        [claim.user for claim in claims],
        [claim.request_id for claim in claims],
        [claim.headers for claim in claims],
    )
    answers: list[ReserveAnswer] = [SOLD_OUT] * len(claims)
    for row in rows:
        ordinal, outcome, resource_id, reservation_id = row.values()
        answers[ordinal - 1] = (
            Reserved(resource_id, reservation_id, again=outcome == "again")
            if outcome in ("reserved", "again")
            else _OUTCOMES[outcome]
        )
    return answers


async def status(conn: Connection, reservation_id: UUID) -> tuple[ReservationState, str] | None:
    """What became of a reservation, and whose it is; None if it is unknown."""
    rows = await call(conn, _STATUS, reservation_id)
    if not rows:
        return None
    row = rows[0]
    state = ReservationState(
        reservation_id=row["reservation_id"],
        resource_id=row["resource_id"],
        pool=row["pool_id"],
        state=State(row["state"]),
        reserved_at=row["locked_at"],
        hold_expires_at=row["hold_expires_at"],
        confirmed_at=row["consumed_at"],
    )
    return state, row["user_id"]


async def policy(conn: Connection) -> Mapping[str, Any]:
    """The queue's row of numbers, and the shortest lease of any pool."""
    return (await call(conn, _POLICY))[0]


async def claim(conn: Connection, limit: int) -> Rows:
    """Lease messages, each with its slot's state and its pool's settings."""
    return await call(conn, _CLAIM, limit)


async def complete(conn: Connection, *args: object) -> Rows:
    """Slots become CONSUMED and their messages go: message, resource and reservation ids."""
    return await call(conn, _COMPLETE, *args)


async def retry(conn: Connection, *args: object) -> set[int]:
    """Try again later: ids, read counts, delays, codes, errors; returns the ids that apply."""
    return {row["msg_id"] for row in await call(conn, _RETRY, *args)}


async def reject(conn: Connection, *args: object) -> set[int]:
    """Dead-letter: ids, read counts, codes, errors; returns the ids that apply."""
    return {row["msg_id"] for row in await call(conn, _REJECT, *args)}


async def release(conn: Connection, *args: object) -> dict[UUID, str]:
    """End reservations unconfirmed: resources, reservations, reason, cancelled ones, messages."""
    return {row["resource_id"]: row["outcome"] for row in await call(conn, _RELEASE, *args)}


async def extend(conn: Connection, *args: object) -> Mapping[int, Any]:
    """Prolong leases: ids, read counts, seconds; returns the new end of those still held."""
    return {row["msg_id"]: row["vt"] for row in await call(conn, _EXTEND, *args)}


async def give_back(conn: Connection, *args: object) -> int:
    """Return what has not started: ids, read counts, lease ends; returns how many."""
    return int((await call(conn, _GIVE_BACK, *args))[0]["count"])


async def begin_commit(conn: Connection, resource: UUID, reservation: UUID) -> bool:
    """Write down that the commit starts; false if the slot is no longer this reservation's."""
    return bool(await call(conn, _BEGIN, [resource], [reservation]))


async def begin_send(conn: Connection, resource: UUID, reservation: UUID) -> str:
    """Write down that a webhook is called: first, again, or lost (it must not be called)."""
    return str((await call(conn, _SEND, resource, reservation))[0]["outcome"])


async def validated(conn: Connection, resource: UUID, reservation: UUID) -> bool:
    """Remember that validation said yes and start the commit; false if the slot is lost."""
    return bool(await call(conn, _VALIDATED, [resource], [reservation]))


async def reconcile(conn: Connection, tickets: str) -> Rows:
    """Correct slots from confirmed tickets, given as a JSON array."""
    return await call(conn, _RECONCILE, tickets)


async def ready(conn: Connection) -> bool:
    """Whether a claim might find something."""
    return bool((await call(conn, "select public.intake_ready() as ready"))[0]["ready"])


async def tend(conn: Connection) -> Mapping[str, Any]:
    """Housekeeping, unless somebody has just done it."""
    return (await call(conn, "select reaped, due, swept from public.intake_tend(false)"))[0]


async def dead_list(conn: Connection, pool: str | None, *, after: int, limit: int) -> Rows:
    """Dead letters by number, of one pool or all; metadata only."""
    return await call(conn, _LIST, pool, after, limit)


async def dead_one(conn: Connection, msg_id: int) -> Mapping[str, Any] | None:
    """Reservation and resource of one dead letter, and whether its pool commits by webhook."""
    rows = await call(conn, _ONE, msg_id - 1)
    return rows[0] if rows else None


async def dead_replay(
    conn: Connection, msg_ids: Sequence[int], *, reason: str, operator: str
) -> Rows:
    """Give dead letters a new cycle; the outcome and audit id of each."""
    return await call(conn, _REPLAY, list(msg_ids), reason, operator)


async def dead_discard(
    conn: Connection,
    msg_ids: Sequence[int],
    *,
    reason: str,
    operator: str,
    cancelled: Sequence[UUID] = (),
) -> Rows:
    """Give dead letters up; `cancelled` names reservations the ledger has cancelled."""
    return await call(conn, _DISCARD, list(msg_ids), reason, operator, list(cancelled))


# Scheduled jobs, by the names of penstock.schedule.


async def metrics_snapshot(conn: PooledConnection) -> None:
    """Write one row of counts per active pool."""
    await call(conn, "select public.snapshot_engine_metrics()")


async def reap_orphaned_slots(conn: PooledConnection) -> None:
    """Put reserved slots back on offer that no message speaks for."""
    await call(conn, "select public.reap_orphaned_slots(interval '10 minutes')")


async def expire_holds(conn: PooledConnection) -> None:
    """Release reservations whose hold ran out before their commit started."""
    await call(conn, "select public.intake_expire_holds()")


async def purge_metrics(conn: PooledConnection) -> None:
    """Remove old metrics."""
    await call(conn, "select public.intake_purge_metrics()")


async def tend_now(conn: PooledConnection) -> None:
    """Keep watermarks and returned messages, also where no bridge runs."""
    await call(conn, "select reaped from public.intake_tend(false)")


JOBS = {
    "metrics_snapshot": metrics_snapshot,
    "reap_orphaned_slots": reap_orphaned_slots,
    "intake_expire_holds": expire_holds,
    "intake_purge_metrics": purge_metrics,
    "intake_tend": tend_now,
}
