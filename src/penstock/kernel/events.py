"""The catalogue of everything observable. Logs, metrics and traces subscribe; nothing else does.

An observation holds ids, counts, codes and durations, never a payload and never a secret, so that
any subscriber may write down all of it.
"""

from dataclasses import dataclass
from typing import ClassVar
from uuid import UUID

from penstock.kernel.observation import Events as Events
from penstock.kernel.observation import Level
from penstock.kernel.observation import Observation as Observation
from penstock.kernel.observation import Subscriber as Subscriber


@dataclass(frozen=True, slots=True)
class Claimed(Observation):
    """A claim came back with items."""

    name: ClassVar[str] = "claimed"
    level: ClassVar[Level] = "debug"
    queue: str
    count: int
    latency_ms: float


@dataclass(frozen=True, slots=True)
class Handled(Observation):
    """A handler answered; `verdict` is done, retry, reject or unknown."""

    name: ClassVar[str] = "handled"
    level: ClassVar[Level] = "debug"
    queue: str
    topic: str
    item_id: UUID
    attempt: int
    verdict: str
    code: str
    latency_ms: float


@dataclass(frozen=True, slots=True)
class HandlerRaised(Observation):
    """A handler raised; only the type of the exception is kept, its text may hold anything."""

    name: ClassVar[str] = "handler_raised"
    level: ClassVar[Level] = "warning"
    queue: str
    topic: str
    item_id: UUID
    attempt: int
    error_type: str


@dataclass(frozen=True, slots=True)
class Finished(Observation):
    """A batch of outcomes was written; `stale` of them were refused because the lease was lost."""

    name: ClassVar[str] = "finished"
    level: ClassVar[Level] = "debug"
    queue: str
    count: int
    stale: int
    latency_ms: float


@dataclass(frozen=True, slots=True)
class FinishRefused(Observation):
    """A finish came too late: another worker owns the item. Kept as a late result."""

    name: ClassVar[str] = "finish_refused"
    level: ClassVar[Level] = "warning"
    queue: str
    item_id: UUID
    epoch: int
    verdict: str


@dataclass(frozen=True, slots=True)
class FinishFailed(Observation):
    """The database would not take an outcome; the lease will end and the item comes back."""

    name: ClassVar[str] = "finish_failed"
    level: ClassVar[Level] = "error"
    queue: str
    item_id: UUID
    error_type: str


@dataclass(frozen=True, slots=True)
class ItemDied(Observation):
    """An item was rejected, for good or after its last attempt: it is a dead letter now."""

    name: ClassVar[str] = "item_died"
    level: ClassVar[Level] = "error"
    queue: str
    topic: str
    item_id: UUID
    attempt: int
    code: str


@dataclass(frozen=True, slots=True)
class LeaseWasLost(Observation):
    """An extension was refused while the handler was still running."""

    name: ClassVar[str] = "lease_lost"
    level: ClassVar[Level] = "warning"
    queue: str
    item_id: UUID
    epoch: int


@dataclass(frozen=True, slots=True)
class Released(Observation):
    """Items that had not started were given back without counting an attempt."""

    name: ClassVar[str] = "released"
    queue: str
    count: int


@dataclass(frozen=True, slots=True)
class Tended(Observation):
    """Housekeeping of a queue did something: expired leases, due rows or late commits returned."""

    name: ClassVar[str] = "tended"
    level: ClassVar[Level] = "debug"
    queue: str
    reaped: int
    due: int
    swept: int


@dataclass(frozen=True, slots=True)
class WokeUp(Observation):
    """A pump stopped waiting; `by` is notify, poll, doorbell or busy."""

    name: ClassVar[str] = "woke_up"
    level: ClassVar[Level] = "debug"
    queue: str
    by: str


@dataclass(frozen=True, slots=True)
class ListenUnavailable(Observation):
    """LISTEN does not arrive here (a transaction pooler, most likely); polling carries on alone."""

    name: ClassVar[str] = "listen_unavailable"
    level: ClassVar[Level] = "warning"
    reason: str


@dataclass(frozen=True, slots=True)
class Disconnected(Observation):
    """The database went away; the worker keeps trying."""

    name: ClassVar[str] = "disconnected"
    level: ClassVar[Level] = "warning"
    queue: str
    error_type: str
    retry_in_s: float


@dataclass(frozen=True, slots=True)
class Reconnected(Observation):
    """The database is back."""

    name: ClassVar[str] = "reconnected"
    queue: str
    after_s: float


@dataclass(frozen=True, slots=True)
class JobRan(Observation):
    """A scheduled job ended; `error_type` is empty when it went well."""

    name: ClassVar[str] = "job_ran"
    level: ClassVar[Level] = "debug"
    job: str
    latency_ms: float
    error_type: str


@dataclass(frozen=True, slots=True)
class WorkerStarted(Observation):
    """A worker process begins to claim."""

    name: ClassVar[str] = "worker_started"
    worker_id: UUID
    queues: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BackgroundFailed(Observation):
    """Something that a worker does beside its work has ended; the work itself goes on."""

    name: ClassVar[str] = "background_failed"
    level: ClassVar[Level] = "error"
    part: str
    error_type: str


@dataclass(frozen=True, slots=True)
class WorkerStopped(Observation):
    """A worker has drained; `abandoned` items were still running and will be taken over."""

    name: ClassVar[str] = "worker_stopped"
    worker_id: UUID
    released: int
    abandoned: int


@dataclass(frozen=True, slots=True)
class ReservationConfirmed(Observation):
    """Intake: the ledger or the commit webhook has the reservation; its slot is sold."""

    name: ClassVar[str] = "reservation_confirmed"
    level: ClassVar[Level] = "debug"
    msg_id: int
    pool_id: str
    reservation_id: UUID
    attempt: int


@dataclass(frozen=True, slots=True)
class ReservationRetried(Observation):
    """Intake: the commit did not come about; the message stays and is tried again."""

    name: ClassVar[str] = "reservation_retried"
    level: ClassVar[Level] = "warning"
    msg_id: int
    pool_id: str
    reservation_id: UUID
    attempt: int
    code: str
    delay_s: float


@dataclass(frozen=True, slots=True)
class ReservationDead(Observation):
    """Intake: the message went to the dead letters; its slot stays held until a person acts."""

    name: ClassVar[str] = "reservation_dead"
    level: ClassVar[Level] = "error"
    msg_id: int
    pool_id: str
    reservation_id: UUID
    attempt: int
    code: str


@dataclass(frozen=True, slots=True)
class ReservationReleased(Observation):
    """Intake: the reservation ended unconfirmed, for good; its place is on offer again."""

    name: ClassVar[str] = "reservation_released"
    msg_id: int
    pool_id: str
    reservation_id: UUID
    code: str
    outcome: str


@dataclass(frozen=True, slots=True)
class LedgerDown(Observation):
    """Intake: the ledger does not answer; its messages wait and nothing is lost."""

    name: ClassVar[str] = "ledger_down"
    level: ClassVar[Level] = "warning"
    error_type: str
    retry_in_s: float


@dataclass(frozen=True, slots=True)
class LedgerBack(Observation):
    """Intake: the ledger answers again."""

    name: ClassVar[str] = "ledger_back"
    after_s: float


@dataclass(frozen=True, slots=True)
class ReceiverRefusesUs(Observation):
    """Intake: a pool's webhook answers 401, 403 or 407: our key or its address is wrong."""

    name: ClassVar[str] = "receiver_refuses_us"
    level: ClassVar[Level] = "error"
    msg_id: int
    pool_id: str
    code: str


@dataclass(frozen=True, slots=True)
class DeliveryTaken(Observation):
    """Inbox: a verified delivery was committed; `result` is how its events were taken in."""

    name: ClassVar[str] = "delivery_taken"
    level: ClassVar[Level] = "debug"
    source: str
    provider: str
    result: str
    count: int


@dataclass(frozen=True, slots=True)
class DeliveryRejected(Observation):
    """Inbox: a request was not believed, and nothing was stored. Unknown names are not kept."""

    name: ClassVar[str] = "delivery_rejected"
    source: str
    reason: str


@dataclass(frozen=True, slots=True)
class SourceUnusable(Observation):
    """Inbox: a source cannot verify anything as it is configured; its deliveries are refused."""

    name: ClassVar[str] = "source_unusable"
    level: ClassVar[Level] = "error"
    source: str
    reason: str


@dataclass(frozen=True, slots=True)
class AttemptsRecorded(Observation):
    """Payments: rows were added to the attempts; `state` is theirs, or HELD."""

    name: ClassVar[str] = "attempts_recorded"
    level: ClassVar[Level] = "debug"
    queue: str
    state: str
    count: int


@dataclass(frozen=True, slots=True)
class PaymentLate(Observation):
    """Payments: a rail paid after the lease was lost; the payment is recorded as dispatched."""

    name: ClassVar[str] = "payment_late"
    level: ClassVar[Level] = "warning"
    outbox_id: UUID
    rail: str
    attempt: int


@dataclass(frozen=True, slots=True)
class PaymentResolved(Observation):
    """Payments: a rail was asked about a held payment and knew what became of it."""

    name: ClassVar[str] = "payment_resolved"
    outbox_id: UUID
    rail: str
    resolution: str


@dataclass(frozen=True, slots=True)
class DestinationUnusable(Observation):
    """Outbox: a destination cannot be used here as it is configured; its deliveries wait."""

    name: ClassVar[str] = "destination_unusable"
    level: ClassVar[Level] = "error"
    destination: str
    reason: str


@dataclass(frozen=True, slots=True)
class DestinationChanged(Observation):
    """Outbox: a breaker is `open` or `closed` now, or the receiver is `gone` and disabled."""

    name: ClassVar[str] = "destination_changed"
    level: ClassVar[Level] = "warning"
    destination: str
    state: str
    code: str
