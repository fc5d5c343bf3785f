"""A payment's story: every dispatch and outcome on record, what came late, who acted."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import msgspec


@dataclass(frozen=True, slots=True)
class PaymentAttempt:
    """One row of the record. Odd numbers are dispatches, even ones their outcomes.

    `link_no` is its place in the participant's chain of hashes; None until the job has linked it.
    """

    attempt_no: int
    state: str
    claimed_at: datetime
    completed_at: datetime | None = None
    rail_reference: str | None = None
    rail_code: str | None = None
    error_code: str | None = None
    error: str | None = None
    latency_ms: int | None = None
    owner: UUID | None = None
    link_no: int | None = None


@dataclass(frozen=True, slots=True)
class LateResult:
    """What a worker reported after it had lost its lease."""

    recorded_at: datetime
    verdict: str
    code: str | None = None


@dataclass(frozen=True, slots=True)
class PaymentAction:
    """What a person, or the resolver, did with the payment; `actor` is the login."""

    id: UUID
    at: datetime
    operation: str
    actor: str
    reason: str
    operator: str | None = None


@dataclass(frozen=True, slots=True)
class PaymentStory:
    """Everything known about one payment but its payload, of which there is the digest."""

    id: UUID
    state: str
    topic: str
    instruction_id: str
    idempotency_key: str
    participant_id: str
    sequence_id: int
    payload_sha256: str
    created_at: datetime
    replay_count: int
    attempts: tuple[PaymentAttempt, ...]
    late_results: tuple[LateResult, ...]
    audit: tuple[PaymentAction, ...]
    first_sent_at: datetime | None = None
    lease_expires_at: datetime | None = None
    held_at: datetime | None = None
    terminal_at: datetime | None = None
    discarded_at: datetime | None = None
    reconciled_at: datetime | None = None
    error_code: str | None = None
    error: str | None = None

    @property
    def rail(self) -> str:
        """The rail that it goes over."""
        return self.topic


def read_story(document: str) -> PaymentStory:
    """The story from what the database tells."""
    return msgspec.json.decode(document, type=PaymentStory)
