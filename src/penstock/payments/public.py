"""Payments' part of the application object: declare rails, enqueue, withdraw, work in a worker."""

import sys
from collections.abc import Mapping, Sequence
from datetime import timedelta
from inspect import iscoroutinefunction
from uuid import UUID

import msgspec

from penstock.kernel.connections import (
    AsyncConn,
    SyncConn,
    adapt,
    adapt_sync,
    require_transaction,
    require_transaction_sync,
)
from penstock.kernel.database import PooledConnection
from penstock.kernel.errors import BadHandler, NotPermitted, WrongUsage
from penstock.kernel.events import Tended
from penstock.kernel.lending import Lending
from penstock.kernel.scheduler import Job
from penstock.kernel.traces import Traces
from penstock.kernel.worker import Assignment
from penstock.payments import chain, store
from penstock.payments.instruction import Instruction
from penstock.payments.model import QUEUE, NewPayment, RailPolicy
from penstock.payments.queue import PaymentsQueue
from penstock.payments.rails import AnswersStatus, Rail
from penstock.payments.relayer import Permits, RailLane, Registered
from penstock.payments.resolver import Resolver
from penstock.payments.story import PaymentStory, read_story

BATCH_MAX = 1000
NAME_LENGTH_MAX = 100
CONCURRENCY = 64
DECLARED = "declared by the application"


class Payments:
    """Money instructions: in sequence per participant, each paid at most once per key."""

    queue_name = QUEUE

    def __init__(self) -> None:
        self.rails: dict[str, Registered] = {}

    def rail(
        self,
        name: str,
        rail: Rail,
        *,
        key_window: timedelta | None,
        timeout_s: float = 30,
        concurrency: int = CONCURRENCY,
    ) -> None:
        """Let this application dispatch over a rail.

        `key_window` is for how long the rail surely recognises a repeated key; None: it does not,
        and what may have been sent is held instead of being sent again. `concurrency` bounds the
        calls of one process.
        """
        if not 1 <= len(name) <= NAME_LENGTH_MAX or name in self.rails:
            raise BadHandler(
                f"rail {name!r} is declared twice or has no usable name",
                todo="declare each rail once, by a name of 1 to 100 characters.",
            )
        if isinstance(rail, type) or not iscoroutinefunction(getattr(rail, "dispatch", None)):
            raise BadHandler(
                f"rail {name}: the object given has no async method dispatch",
                todo="give an instance with `async def dispatch(self, instruction, key)`.",
            )
        if key_window is not None and key_window.total_seconds() <= timeout_s:
            raise BadHandler(
                f"rail {name}: its key window is not longer than its time limit",
                todo="a key that is forgotten during a call protects nothing: say None.",
            )
        if not 0.1 <= timeout_s <= 600 or concurrency < 1:
            raise BadHandler(f"rail {name}: timeout_s is 0.1 to 600, concurrency at least 1")
        self.rails[name] = Registered(name, rail, key_window, timeout_s, concurrency)

    async def enqueue(
        self,
        conn: AsyncConn,
        instruction: Instruction,
        *,
        idempotency_key: str,
        autocommit_ok: bool = False,
    ) -> UUID:
        """Enqueue in the caller's open transaction, last; a repeated key returns the same payment.

        Raises PaymentRefused for what cannot be dispatched and PaymentKeyReused for a key that was
        used for another payment.
        """
        user = adapt(conn)
        await require_transaction(user, autocommit_ok=autocommit_ok)
        new = _new(instruction, idempotency_key)
        return (await store.enqueue(user, new, _headers())).outbox_id

    def enqueue_sync(
        self,
        conn: SyncConn,
        instruction: Instruction,
        *,
        idempotency_key: str,
        autocommit_ok: bool = False,
    ) -> UUID:
        """The same on a blocking connection: psycopg, SQLAlchemy or Django."""
        user = adapt_sync(conn)
        require_transaction_sync(user, autocommit_ok=autocommit_ok)
        new = _new(instruction, idempotency_key)
        return store.enqueue_sync(user, new, _headers()).outbox_id

    async def enqueue_many(
        self,
        conn: AsyncConn,
        payments: Sequence[tuple[Instruction, str]],
        *,
        autocommit_ok: bool = False,
    ) -> list[UUID]:
        """Enqueue pairs of instruction and key, all or none, answered in the order given."""
        user = adapt(conn)
        await require_transaction(user, autocommit_ok=autocommit_ok)
        if autocommit_ok and len(payments) > BATCH_MAX:
            raise WrongUsage(f"more than {BATCH_MAX} payments need a transaction to be all or none")
        new = [_new(instruction, key) for instruction, key in payments]
        headers = _headers()
        found: list[UUID] = []
        for start in range(0, len(new), BATCH_MAX):
            rows = await store.enqueue_many(user, new[start : start + BATCH_MAX], headers)
            found += [row.outbox_id for row in rows]
        return found

    async def cancel(self, conn: AsyncConn, outbox_id: UUID, *, reason: str) -> bool:
        """Withdraw a payment that was never sent; its number in the sequence stays used."""
        return await store.cancel(adapt(conn), outbox_id, reason=reason)

    async def story(self, conn: AsyncConn, outbox_id: UUID) -> PaymentStory:
        """Every dispatch and outcome of a payment, and who acted on it; raises NotFound.

        For a login with `penstock_operator`, `penstock_control` or `penstock_auditor`.
        """
        return read_story(await store.story(adapt(conn), outbox_id))

    def kinds(self) -> Sequence[type]:
        """Rails are objects of the user's, so nothing is asked for."""
        return ()

    async def assignment(self, lending: Lending) -> Assignment | None:
        """The queue with one lane per rail; None when no rail is declared here."""
        if not self.rails:
            return None
        known = await self._agreed(lending)
        queue = PaymentsQueue(known, lending.events)
        permits = Permits(lending.database)
        lanes = {
            name: RailLane(registered, permits, lending.events)
            for name, registered in known.items()
        }
        return Assignment(queue, lanes)

    async def _agreed(self, lending: Lending) -> dict[str, Registered]:
        """The rails as declared, with the operators' codes; the database must know them alike."""
        async with lending.database.connection() as conn:
            rows = {row.rail_type: row for row in await store.rails(conn)}
            for name, registered in self.rails.items():
                if name not in rows:
                    await _declare(conn, registered)
                elif not _agrees(registered, rows[name]):
                    raise _otherwise(registered, "knows it otherwise")
            rows = {row.rail_type: row for row in await store.rails(conn)}
        return {
            name: Registered(
                name, r.rail, r.key_window, r.timeout_s, r.concurrency, rows[name].codes
            )
            for name, r in self.rails.items()
        }

    def jobs(self, lending: Lending) -> Mapping[str, Job]:
        """Ended leases, the chain, partitions ahead, and held payments that a rail knows about."""
        queue = PaymentsQueue(self.rails, lending.events)

        async def reap(conn: PooledConnection) -> None:
            requeued = await queue.reap(conn)
            if requeued:
                lending.events.emit(Tended(QUEUE, requeued, 0, 0))

        return {
            "payments_reap": reap,
            "payments_chain": chain.extend,
            "payments_partitions": store.partitions,
            "payments_resolve": Resolver(self.rails, lending.events).run,
        }


def _new(instruction: Instruction, key: str) -> NewPayment:
    return NewPayment(
        instruction.instruction_id,
        instruction.participant_id,
        key,
        instruction.rail,
        instruction.payload(),
    )


def _headers() -> str:
    """The trace of whoever enqueues, where there is one."""
    # Without the module imported by the application there can be no trace to capture.
    if "opentelemetry.trace" not in sys.modules:
        return "{}"
    return msgspec.json.encode(Traces().capture()).decode()


def _values(registered: Registered) -> dict[str, object]:
    window = registered.key_window
    return {
        "idempotent": window is not None,
        "idempotency_window": None if window is None else f"{window.total_seconds()} seconds",
        "timeout_ms": round(registered.timeout_s * 1000),
        "status_query": isinstance(registered.rail, AnswersStatus),
    }


def _agrees(registered: Registered, row: RailPolicy) -> bool:
    """Whether the database knows the rail as it is declared: it decides what is sent again."""
    window = registered.key_window
    return (
        row.idempotent == (window is not None)
        and row.idempotency_window_s == (None if window is None else window.total_seconds())
        and round(row.timeout_s * 1000) == round(registered.timeout_s * 1000)
        and row.status_query == isinstance(registered.rail, AnswersStatus)
    )


async def _declare(conn: PooledConnection, registered: Registered) -> None:
    """Write the row of a rail that has none; one that is there is the operators' to change."""
    try:
        await store.put_rail(conn, registered.name, _written(registered), reason=DECLARED)
    except NotPermitted as error:
        raise _otherwise(registered, "does not know it") from error


def _written(registered: Registered) -> str:
    return msgspec.json.encode(_values(registered)).decode()


def _otherwise(registered: Registered, known: str) -> WrongUsage:
    return WrongUsage(
        f"rail {registered.name} is declared here, and the database {known}",
        happened="what is sent again after a failure depends on the rail's row, so nothing was "
        "started.",
        todo=f"as a login with penstock_control: select public.put_payment_rail("
        f"'{registered.name}', '{_written(registered)}', 'REASON'); or change the declaration.",
    )
