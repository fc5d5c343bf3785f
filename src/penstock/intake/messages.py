"""A claimed message of intake: its reservation, its slot as found, and its pool's settings."""

import json
from collections.abc import Mapping
from time import monotonic
from typing import Any
from uuid import UUID

from penstock.kernel.lease import Lease
from penstock.kernel.queue import Item

QUEUE = "intake"
LEDGER_LANE = "ledger"
WEBHOOK_LANE = "webhook"

# Failures that are nobody's but ours or the receiver's set-up: they use up no attempts, because an
# outage of an hour must not turn a queue into dead letters.
LEDGER_DOWN = "LEDGER_DOWN"
LANE_FULL = "LANE_FULL"
KEY_REFUSED = frozenset({401, 403, 407})
NOT_COUNTED = frozenset({LEDGER_DOWN, LANE_FULL, *(f"HTTP_{status}" for status in KEY_REFUSED)})


class Message(Item):
    """A leased message. `release` and `cancelled` say how a refusal ends: see the queue.

    `called`: a webhook was called for it under this lease. `first_call`: the commit was never sent
    before, under any lease.
    """

    text: str = ""
    pool: str = ""
    resource: UUID | None = None
    slot: str = ""
    validated: bool = False
    commit_started: bool = False
    exhausted: bool = False
    hold_over: bool = False
    configured: bool = True
    validation_url: str | None = None
    commit_function: str | None = None
    commit_url: str | None = None
    last_code: str | None = None
    release: bool = False
    cancelled: bool = False
    called: bool = False
    first_call: bool = False

    @property
    def needs_validation(self) -> bool:
        """Whether the validation webhook has not said yes yet."""
        return self.validation_url is not None and not self.validated

    @property
    def out_of_attempts(self) -> bool:
        """Whether its attempts are used up by failures that count."""
        return self.exhausted and self.last_code not in NOT_COUNTED


def message_of(row: Mapping[str, Any], before: float | None = None) -> Message:
    """The message of a claimed row; `before` is the monotonic time before the claim was sent."""
    # Unpacking values by position costs a third of looking each up by name.
    values = tuple(row.values())
    msg_id, read_ct, enqueued_at, vt, text, headers_text, pool, resource, _, reservation = values[
        :10
    ]
    slot, validated, commit_started, exhausted, hold_over, configured = values[10:16]
    max_retries, lease_s, validation_url, commit_function, commit_url = values[16:]
    headers = _headers(headers_text)
    since = monotonic() if before is None else before
    identity = reservation or UUID(int=msg_id)
    message = Message(
        key=msg_id,
        id=identity,
        topic=LEDGER_LANE,
        payload=b"",
        headers=headers,
        created_at=enqueued_at,
        attempt=read_ct,
        max_attempts=max_retries or 10,
        lease=Lease(identity, read_ct, vt, since + lease_s),
        text=text,
        pool=pool or "",
        resource=resource if reservation else None,
        slot=slot,
        validated=validated,
        commit_started=commit_started,
        exhausted=exhausted,
        hold_over=hold_over,
        configured=configured,
        validation_url=validation_url,
        commit_function=commit_function,
        commit_url=commit_url,
        last_code=headers.get("error_code"),
    )
    if _needs_http(message):
        message.topic = WEBHOOK_LANE
    return message


def _needs_http(message: Message) -> bool:
    return (
        message.slot == "reserved"
        and not message.out_of_attempts
        and not message.hold_over
        and message.resource is not None
        and (message.needs_validation or message.commit_url is not None)
    )


def _headers(text: str | None) -> dict[str, str]:
    if text is None:
        return {}
    found = json.loads(text)
    if not isinstance(found, dict):
        return {}  # written by hand; it must not stop the others
    return {name: value for name, value in found.items() if isinstance(value, str)}
