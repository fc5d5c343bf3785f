"""What payments speak of: states, claimed payments, endings, and a payment's story."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Literal, TypeAlias
from uuid import UUID

QUEUE = "payments"
CHANNEL = "outbox_pending"
CODE_LENGTH_MAX = 100
REFERENCE_LENGTH_MAX = 200

Resolution: TypeAlias = Literal["dispatched", "not_paid", "failed"]
RailClass: TypeAlias = Literal["OK", "RETRY", "REJECT", "UNKNOWN"]


class AttemptState(StrEnum):
    """What a row of the attempts records (SQL type `outbox_attempt_state`)."""

    DISPATCHING = "DISPATCHING"
    DISPATCHED = "DISPATCHED"
    RETRYABLE = "RETRYABLE"
    FAILED = "FAILED"
    ZOMBIE_REQUEUE = "ZOMBIE_REQUEUE"


class EndState(StrEnum):
    """What a worker may report of a dispatch. After UNKNOWN the money may have moved."""

    DISPATCHED = "DISPATCHED"
    RETRYABLE = "RETRYABLE"
    FAILED = "FAILED"
    UNKNOWN = "UNKNOWN"
    HELD = "HELD"


class PaymentState(StrEnum):
    """Where a payment stands. LOST means taken out of pending by hand: `prove` names it."""

    PENDING = "PENDING"
    DISPATCHING = "DISPATCHING"
    RETRYABLE = "RETRYABLE"
    HELD = "HELD"
    DISPATCHED = "DISPATCHED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    LOST = "LOST"


@dataclass(frozen=True, slots=True)
class Enqueued:
    """What an enqueue answers; `is_new` is false when the key was known."""

    outbox_id: UUID
    sequence_id: int
    created_at: datetime
    state: PaymentState
    is_new: bool


@dataclass(frozen=True, slots=True)
class NewPayment:
    """One payment to enqueue; `payload` is JSON text."""

    instruction_id: str
    participant_id: str
    idempotency_key: str
    rail_type: str
    payload: str


@dataclass(frozen=True, slots=True)
class Claimed:
    """A payment in flight under a token of its own; `payload` and `headers` are JSON text."""

    outbox_id: UUID
    instruction_id: str
    participant_id: str
    sequence_id: int
    idempotency_key: str
    rail_type: str
    payload: str
    headers: str
    created_at: datetime
    attempt_no: int
    attempt: int
    max_attempts: int
    claimed_at: datetime
    lease_token: UUID
    lease_epoch: int
    lease_expires_at: datetime
    lease_s: int
    first_sent_at: datetime | None


@dataclass(frozen=True, slots=True)
class Claim:
    """What a claim brought. `cursor` is where the next one goes on; `idle`: nothing can be had."""

    payments: tuple[Claimed, ...]
    cursor: str
    idle: bool


@dataclass(frozen=True, slots=True)
class Permit:
    """The right to send one payment now: the lease is surely held for `lease_s` seconds."""

    outbox_id: UUID
    lease_expires_at: datetime
    lease_s: float


@dataclass(frozen=True, slots=True)
class Ending:
    """What a worker reports of one dispatch; without `delay_s` the queue's back-off decides."""

    outbox_id: UUID
    token: UUID
    state: EndState
    delay_s: float | None = None
    rail_reference: str | None = None
    rail_code: str | None = None
    error_code: str | None = None
    error_message: str | None = None
    latency_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Held:
    """A held payment whose rail can be asked what became of it."""

    outbox_id: UUID
    instruction_id: str
    participant_id: str
    sequence_id: int
    idempotency_key: str
    rail_type: str
    payload: str
    headers: str
    attempt_no: int
    held_at: datetime
    first_sent_at: datetime | None
    error_code: str | None


@dataclass(frozen=True, slots=True)
class RailPolicy:
    """A rail's row, and the class of each of its codes."""

    rail_type: str
    idempotent: bool
    idempotency_window_s: float | None
    timeout_s: float
    max_concurrency: int | None
    status_query: bool
    on_failed: str
    codes: dict[str, RailClass]


@dataclass(frozen=True, slots=True)
class BrokenLink:
    """The first place where a participant's chain of attempts does not hold."""

    participant_id: str
    link_no: int | None
    attempt_id: UUID
    problem: str


@dataclass(frozen=True, slots=True)
class Violation:
    """One row that contradicts an invariant."""

    invariant: str
    participant_id: str | None
    outbox_id: UUID | None
    detail: str


def storable(value: str | None, length: int = CODE_LENGTH_MAX) -> str | None:
    """What Postgres can hold of a rail's words: no NUL, no half character, not too much."""
    if not value:
        return None
    if value.isascii() and "\0" not in value:
        return value[:length]
    return value.replace("\0", "").encode(errors="replace").decode()[:length]
