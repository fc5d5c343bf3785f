"""What comes of a claimed message: the decisions of the bridge, for both lanes.

A message is safe to process any number of times. The reservation decides: in the ledger by its
key, at a webhook by a constant header. So a worker that dies anywhere leaves nothing to clean up.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import cast

import asyncpg

from penstock.intake import engine
from penstock.intake.errors import FunctionNotAllowed, OwnershipConflict, ReservationCancelled
from penstock.intake.ledger import BATCHED_FUNCTION, Ledger, LedgerAway
from penstock.intake.messages import KEY_REFUSED, LEDGER_DOWN, Message
from penstock.intake.webhooks import Webhooks
from penstock.kernel.database import Database
from penstock.kernel.errors import PenstockError
from penstock.kernel.events import Events, ReceiverRefusesUs
from penstock.kernel.failpoints import failpoint
from penstock.kernel.handler import LOST, Answer
from penstock.kernel.queue import Item
from penstock.kernel.replies import Reply, verdict_of
from penstock.kernel.verdict import DONE, Done, Reject, Retry

LEDGER_BATCH = 500
LEDGER_CALLS = 2
WEBHOOK_CALLS = 64
NEVER = 1_000_000  # attempts are counted per pool, by the database
AWAY = Retry(after=timedelta(seconds=1), code=LEDGER_DOWN)
KEY_REFUSED_PAUSE = timedelta(seconds=60)
# These tell of a wrong address, not of the sale: a person looks, the slot stays held.
WRONG_ADDRESS = frozenset({404, 405})


class LedgerLane:
    """Confirms batches in the ledger; also decides what needs no commit at all."""

    size = LEDGER_BATCH
    concurrency = LEDGER_CALLS
    timeout_s = 60.0
    max_attempts = NEVER

    def __init__(self, database: Database, ledger: Ledger) -> None:
        self._database = database
        self._ledger = ledger

    async def handle(self, items: Sequence[Item]) -> Sequence[Answer]:
        """Answer for each message in order."""
        messages = [cast(Message, item) for item in items]
        answers: dict[int, Answer] = {}
        asked: list[Message] = []
        by_function: dict[str, list[Message]] = {}
        for message in messages:
            answer = triage(message)
            if answer is not None:
                answers[message.key] = answer
            elif needs_asking(message):
                asked.append(message)
            else:
                function = message.commit_function or BATCHED_FUNCTION
                by_function.setdefault(function, []).append(message)
        if asked:
            answers |= await self._ask(asked)
        for function, group in by_function.items():
            answers |= await self.commit(group, function)
        return [answers[message.key] for message in messages]

    async def commit(self, messages: Sequence[Message], function: str) -> dict[int, Answer]:
        """Confirm messages by one function of the ledger."""
        unfenced = [message for message in messages if not message.commit_started]
        lost = {message.key for message in unfenced if not await self._begin(message)}
        fenced = [message for message in messages if message.key not in lost]
        answers: dict[int, Answer] = dict.fromkeys(lost, LOST)
        try:
            answers |= await self._finalize(fenced, function)
        except LedgerAway:
            answers |= {message.key: AWAY for message in fenced}
        return answers

    async def _begin(self, message: Message) -> bool:
        assert message.resource is not None, "triage takes the others"
        async with self._database.connection() as conn:
            return await engine.begin_commit(conn, message.resource, message.id)

    async def _finalize(self, messages: Sequence[Message], function: str) -> dict[int, Answer]:
        if not messages:
            return {}
        alone = len(messages) == 1
        if not alone and function != BATCHED_FUNCTION:
            return await self._halves(messages, function)  # one call per payload, one answer each
        try:
            outcomes = await self._ledger.finalize([m.text for m in messages], function)
        except OwnershipConflict:
            outcomes = ["conflict"]
        except ReservationCancelled:
            outcomes = ["cancelled"]
        except FunctionNotAllowed as error:
            return {m.key: Retry(code=error.code, reason=error.what) for m in messages}
        except (PenstockError, asyncpg.PostgresError) as error:
            # Whatever the database refused about the batch, only the item it refuses alone waits.
            if not alone:
                return await self._halves(messages, function)
            return {messages[0].key: Retry(code=_code_of(error))}
        failpoint("after_commit_ledger")
        return {
            message.key: await self._answer(message, outcome)
            for message, outcome in zip(messages, outcomes, strict=True)
        }

    async def _halves(self, messages: Sequence[Message], function: str) -> dict[int, Answer]:
        middle = len(messages) // 2
        first = await self._finalize(messages[:middle], function)
        return first | await self._finalize(messages[middle:], function)

    async def _answer(self, message: Message, outcome: str) -> Answer:
        match outcome:
            case "confirmed" | "already":
                return DONE
            case "cancelled":
                message.release = message.cancelled = True
                return Reject("CANCELLED", "the reservation was cancelled in the ledger")
            case "conflict":
                await self._correct(message)
                return Reject("OWNERSHIP_CONFLICT", "the ledger holds it for another reservation")
            case _:
                return Reject("INVALID_MESSAGE", "a field is missing")

    async def _correct(self, message: Message) -> None:
        """The ledger is right: make the engine's slot agree with its ticket."""
        assert message.resource is not None, "the ledger answered for it"
        ticket = await self._ledger.ticket(message.resource)
        if ticket is not None:
            async with self._database.connection() as conn:
                await engine.reconcile(conn, ticket)

    async def _ask(self, messages: Sequence[Message]) -> dict[int, Answer]:
        """What the ledger says of messages that would otherwise be given up."""
        if not self._ledger.is_named:
            return {message.key: end_of(message) for message in messages}
        try:
            known = await self._ledger.outcomes([message.id for message in messages])
            return {m.key: await self._given_up(m, known.get(m.id)) for m in messages}
        except LedgerAway:
            return {message.key: AWAY for message in messages}

    async def _given_up(self, message: Message, outcome: str | None) -> Answer:
        if outcome == "CONFIRMED":
            if message.slot == "foreign":
                await self._correct(message)
            return DONE
        if outcome == "CANCELLED":
            message.release = message.cancelled = message.slot == "reserved"
            return Reject("CANCELLED", "the reservation was cancelled in the ledger")
        return end_of(message)


class WebhookLane:
    """Validates and commits one message at a time, many at once."""

    size = 1
    concurrency = WEBHOOK_CALLS
    timeout_s = 60.0
    max_attempts = NEVER

    def __init__(
        self, database: Database, ledger_lane: LedgerLane, *, webhooks: Webhooks, events: Events
    ) -> None:
        self._database = database
        self._ledger_lane = ledger_lane
        self._webhooks = webhooks
        self._events = events

    async def handle(self, items: Sequence[Item]) -> Sequence[Answer]:
        """Answer for each message in order."""
        return [await self._handle(cast(Message, item)) for item in items]

    async def _handle(self, message: Message) -> Answer:
        if message.needs_validation:
            answer = await self._validate(message)
            if not isinstance(answer, Done):
                return answer
        if message.commit_url is None:
            function = message.commit_function or BATCHED_FUNCTION
            return (await self._ledger_lane.commit([message], function))[message.key]
        if not await self._begin(message) or message.lease.lost:
            return LOST  # another worker has it; no call may start any more
        message.called = True
        reply = await self._webhooks.commit(message)
        return self._commit_answer(message, reply)

    async def _validate(self, message: Message) -> Answer:
        message.called = True
        reply = await self._webhooks.validate(message)
        verdict = self._verdict(message, reply)
        if isinstance(verdict, Reject):
            message.release = True
        if not isinstance(verdict, Done):
            return verdict
        assert message.resource is not None, "triage takes the others"
        async with self._database.connection() as conn:
            held = await engine.validated(conn, message.resource, message.id)
        message.validated = message.commit_started = held
        return DONE if held else LOST

    def _commit_answer(self, message: Message, reply: Reply | str) -> Answer:
        verdict = self._verdict(message, reply)
        if isinstance(verdict, Reject) and _speaks_of_the_sale(message, reply):
            message.release = message.cancelled = True
        if isinstance(verdict, Done):
            failpoint("after_commit_ledger")
        return verdict

    def _verdict(self, message: Message, reply: Reply | str) -> Done | Retry | Reject:
        if isinstance(reply, str):
            return Retry(code=reply)
        if reply.status in KEY_REFUSED:
            self._events.emit(ReceiverRefusesUs(message.key, message.pool, reply.code))
            return Retry(after=KEY_REFUSED_PAUSE, code=reply.code)
        verdict = verdict_of(reply)
        assert isinstance(verdict, Done | Retry | Reject), "an answer is never unknown"
        return verdict

    async def _begin(self, message: Message) -> bool:
        assert message.resource is not None, "triage takes the others"
        async with self._database.connection() as conn:
            outcome = await engine.begin_send(conn, message.resource, message.id)
        message.first_call = outcome == "first"
        return outcome != "lost"


def triage(message: Message) -> Answer | None:
    """The answer to a message that needs neither ledger nor webhook; None for the others."""
    if message.resource is None:
        return Reject("INVALID_MESSAGE", "it names no resource")
    if message.slot == "consumed":
        return DONE
    if message.hold_over:
        message.release = True
        return Reject("HOLD_EXPIRED", "the hold ran out before the commit started")
    if message.out_of_attempts and message.commit_url is not None:
        return end_of(message)  # a webhook cannot be asked what became of it
    if not message.configured and not message.out_of_attempts:
        return Retry(code="NO_CONFIG", reason="the pool has no row in engine_config")
    return None


def needs_asking(message: Message) -> bool:
    """Whether only the ledger's word stands between this message and the dead letters."""
    return message.slot == "foreign" or message.out_of_attempts


def end_of(message: Message) -> Reject:
    """How a message ends that was never confirmed and cannot be."""
    if message.slot == "foreign":
        return Reject("SLOT_LOST", "the slot is not held by this reservation")
    return Reject(message.last_code or "MAX_RETRIES", "attempts are used up")


def _speaks_of_the_sale(message: Message, reply: Reply | str) -> bool:
    """Whether a refusal may free the slot: it is about the sale, and no other call was ever made.

    A call before may have sold it, whatever its answer was; so may one of the worker that has it
    now, if the lease is lost.
    """
    if isinstance(reply, str) or reply.status in WRONG_ADDRESS:
        return False
    return message.first_call and not message.lease.lost


def _code_of(error: Exception) -> str:
    if isinstance(error, asyncpg.PostgresError):
        return f"LEDGER_{error.sqlstate or 'ERROR'}"
    return getattr(error, "code", "LEDGER_ERROR")
