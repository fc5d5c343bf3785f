"""Handlers of the inbox: which one takes an event, what it gets, and that effects happen once."""

import asyncio
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from tests.support.inbox import SqlInbox, arrival

from penstock import Attempt, Batch, Event, Penstock, Reject, Retry, Tx, Unknown, Verdict
from penstock.kernel.errors import BadHandler
from penstock.testing import drain

EFFECT = "insert into effects (event_id, note) values ($1, $2)"


@dataclass
class Charge:
    id: str
    amount: int


async def effects(inbox: SqlInbox) -> list[tuple[str, str]]:
    rows = await inbox.conn.fetch("select event_id, note from effects order by id")
    return [(row["event_id"], row["note"]) for row in rows]


async def test_a_handler_gets_its_model_the_raw_bytes_and_what_the_sender_calls_it(
    ps: Penstock, inbox: SqlInbox, stripe: UUID
) -> None:
    seen: list[Event[Charge]] = []

    @ps.inbox.on("stripe", "charge.paid")
    async def paid(event: Event[Charge], attempt: Attempt) -> None:
        assert attempt.number == 1
        seen.append(event)

    body = '{"id":  "ch_1", "amount": 5}'
    event = arrival(stripe, "evt_1", body, kind="charge.paid", headers='{"user-agent": "S/1"}')
    await inbox.receive(event)
    assert (await drain(ps, only={"inbox"})).finished == 1
    (got,) = seen
    assert (got.id, got.topic, got.data) == (event.id, "charge.paid", Charge("ch_1", 5))
    assert got.raw == body.encode()
    assert (got.headers["user-agent"], got.headers["penstock-event-id"]) == ("S/1", "evt_1")


async def test_the_most_particular_pattern_takes_an_event(
    ps: Penstock, inbox: SqlInbox, stripe: UUID
) -> None:
    seen: dict[str, str] = {}

    def taking(name: str) -> Any:
        async def take(event: Event[Any]) -> None:
            seen[event.topic] = name

        return take

    for pattern in ("*", "payment_intent.*", "payment_intent.succeeded"):
        ps.inbox.on("stripe", pattern)(taking(pattern))
    for kind in ("payment_intent.succeeded", "payment_intent.failed", "paymentXintent.x", ""):
        await inbox.send(stripe, f"evt-{kind}", kind=kind)
    await drain(ps, only={"inbox"})
    assert seen == {
        "payment_intent.succeeded": "payment_intent.succeeded",
        "payment_intent.failed": "payment_intent.*",
        "paymentXintent.x": "*",
        "": "*",
    }


async def test_what_nobody_handles_waits_or_is_ignored_as_its_source_says(
    ps: Penstock, inbox: SqlInbox, stripe: UUID
) -> None:
    ignoring = await inbox.source("ignoring", unhandled="ignore")

    @ps.inbox.on("stripe", "known")
    @ps.inbox.on("ignoring", "known")
    async def take(event: Event[Any]) -> None:
        pass

    await inbox.send(stripe, "a", kind="unknown")
    await inbox.send(ignoring, "b", kind="unknown")
    await drain(ps, only={"inbox"})
    assert (await inbox.status("a"), await inbox.status("b")) == ("pending", "success")


async def test_effect_and_end_are_one_commit_with_tx(
    ps: Penstock, inbox: SqlInbox, stripe: UUID
) -> None:
    @ps.inbox.on("stripe")
    async def take(event: Event[dict[str, Any]], tx: Tx, attempt: Attempt) -> None:
        await tx.execute(EFFECT, event.headers["penstock-event-id"], str(attempt.number))
        if attempt.number < 3:
            raise RuntimeError("after the effect")

    await inbox.send(stripe, "a", "b")
    for _ in range(3):
        await drain(ps, only={"inbox"})
        await inbox.advance(timedelta(minutes=5))
        await inbox.tend()
    assert sorted(await effects(inbox)) == [("a", "3"), ("b", "3")]
    assert await inbox.status("a") == "success"


async def test_an_event_can_be_finished_in_a_transaction_of_the_handlers_own(
    ps: Penstock, inbox: SqlInbox, stripe: UUID, database_url: str
) -> None:
    @ps.inbox.on("stripe")
    async def take(event: Event[Any]) -> None:
        own = await asyncpg.connect(database_url)
        try:
            async with own.transaction():
                await own.execute(EFFECT, event.headers["penstock-event-id"], "own")
                await event.finish(own)
        finally:
            await own.close()

    await inbox.send(stripe, "a")
    await drain(ps, only={"inbox"})
    assert (await effects(inbox), await inbox.status("a")) == ([("a", "own")], "success")


async def test_a_batch_with_one_bad_event_saves_the_others(
    ps: Penstock, inbox: SqlInbox, stripe: UUID
) -> None:
    sizes: list[int] = []

    @ps.inbox.on_batch("stripe", size=10)
    async def take(events: Batch[dict[str, int]], tx: Tx) -> None:
        sizes.append(len(events))
        for event in events:
            await tx.execute(EFFECT, event.headers["penstock-event-id"], "batch")
            if event.data["n"] == 2:
                raise RuntimeError("this one")

    await inbox.receive(*(arrival(stripe, f"e{n}", f'{{"n": {n}}}') for n in range(4)))
    await drain(ps, only={"inbox"})
    assert (sizes[0], len(await effects(inbox))) == (4, 3)
    assert await inbox.status("e2") == "failed"


@pytest.mark.parametrize(
    ("verdict", "status", "code"),
    [
        (Retry(reason="later", code="BUSY"), "failed", "BUSY"),
        (Reject("NO_SUCH_ORDER"), "dead_letter", "NO_SUCH_ORDER"),
        (Unknown("no answer"), "dead_letter", "UNKNOWN"),
    ],
)
async def test_a_verdict_decides_what_becomes_of_the_event(
    ps: Penstock, inbox: SqlInbox, stripe: UUID, verdict: Verdict, status: str, code: str
) -> None:
    @ps.inbox.on("stripe")
    async def take(event: Event[Any]) -> Verdict:
        return verdict

    (event,) = await inbox.send(stripe, "a")
    await drain(ps, only={"inbox"})
    row = await inbox.row(event)
    assert (row["status"], row["error_code"]) == (status, code)


async def test_a_payload_that_does_not_fit_is_dead_at_once_and_never_quoted(
    ps: Penstock, inbox: SqlInbox, stripe: UUID
) -> None:
    def positive(charge: Charge) -> None:
        if charge.amount <= 0:
            raise ValueError(f"secret canary {charge.id}")

    @ps.inbox.on("stripe", check=positive)
    async def take(event: Event[Charge]) -> None:
        raise AssertionError("it must not be called")

    bad = [
        arrival(stripe, "a", '{"id": "canary", "amount": "x"}'),
        arrival(stripe, "b", '{"id": "canary", "amount": -1}'),
    ]
    await inbox.receive(*bad)
    await drain(ps, only={"inbox"})
    for one in bad:
        row = await inbox.row(one.id)
        assert (row["status"], row["error_code"]) == ("dead_letter", "PAYLOAD_INVALID")
        assert "canary" not in row["error"]


async def test_an_outside_call_has_one_key_and_is_left_out_once_answered(
    ps: Penstock, inbox: SqlInbox, stripe: UUID
) -> None:
    calls: list[str] = []

    @ps.inbox.on("stripe")
    async def take(event: Event[Any], attempt: Attempt) -> None:
        async with event.effect("mail") as effect:
            if not effect.done:
                calls.append(effect.key)
                if attempt.number == 1:
                    raise RuntimeError("no answer came")
                effect.external_ref = "msg_1"
        if attempt.number == 2:
            raise RuntimeError("after the answer")
        assert effect.external_ref == "msg_1"

    await inbox.send(stripe, "a")
    for _ in range(3):
        await drain(ps, only={"inbox"})
        await inbox.advance(timedelta(minutes=5))
        await inbox.tend()
    assert await inbox.status("a") == "success"
    assert len(calls) == 2
    assert len(set(calls)) == 1
    row = await inbox.conn.fetchrow("select state, starts, external_ref from webhook_effects")
    assert row is not None
    assert tuple(row) == ("done", 2, "msg_1")


async def test_a_dead_event_replayed_after_the_fix_takes_effect_once(
    ps: Penstock, inbox: SqlInbox, stripe: UUID
) -> None:
    broken = True

    @ps.inbox.on("stripe")
    async def take(event: Event[Any], tx: Tx) -> None:
        await tx.execute(EFFECT, "a", "done")
        if broken:
            raise RuntimeError("not yet fixed")

    (event,) = await inbox.send(stripe, "a")
    for _ in range(6):
        await drain(ps, only={"inbox"})
        await inbox.advance(timedelta(minutes=5))
        await inbox.tend()
    row = await inbox.row(event)
    assert (row["status"], row["total_attempts"]) == ("dead_letter", 5)
    assert await effects(inbox) == []
    broken = False
    await inbox.conn.execute("select penstock.replay('inbox', $1, 'fixed', 'ada')", [event])
    await inbox.receive(arrival(stripe, "a"))
    await drain(ps, only={"inbox"})
    assert await effects(inbox) == [("a", "done")]
    assert await inbox.status("a") == "success"


async def test_two_handlers_for_one_pattern_and_bad_names_are_refused(ps: Penstock) -> None:
    async def take(event: Event[Any]) -> None:
        pass

    ps.inbox.on("stripe", "a.*")(take)
    with pytest.raises(BadHandler, match="already"):
        ps.inbox.on("stripe", "a.*")(take)
    for source, pattern in (("Stripe", "*"), ("stripe", ""), ("", "*")):
        with pytest.raises(BadHandler):
            ps.inbox.on(source, pattern)(take)
    with pytest.raises(BadHandler):
        ps.inbox.on_batch("stripe", size=0)


async def test_a_test_can_drain_on_its_own_open_transaction(
    ps: Penstock, inbox: SqlInbox, stripe: UUID
) -> None:
    @ps.inbox.on("stripe")
    async def take(event: Event[Any], tx: Tx) -> None:
        await tx.execute(EFFECT, "a", "done")

    transaction = inbox.conn.transaction()
    await transaction.start()
    await inbox.send(stripe, "a")
    assert (await drain(ps, inbox.conn, only={"inbox"})).finished == 1
    assert await effects(inbox) == [("a", "done")]
    await transaction.rollback()
    assert await effects(inbox) == []


async def test_an_outage_of_two_seconds_makes_no_dead_letter(
    ps: Penstock, inbox: SqlInbox, stripe: UUID
) -> None:
    """Attempts that came one right after the other would all be used up before it ends."""
    asking = asyncio.Lock()  # one connection, several handlers

    async def now() -> datetime:
        async with asking:
            at: datetime = await inbox.conn.fetchval("select penstock.clock()")
        return at

    started = await now()
    tried: list[datetime] = []

    @ps.inbox.on("stripe")
    async def handler(event: Event[Any]) -> None:
        tried.append(await now())
        if tried[-1] < started + timedelta(seconds=2):
            raise ConnectionError("away")

    await inbox.send(stripe, *(f"evt_{n}" for n in range(3)))
    for _ in range(12):
        await drain(ps, only={"inbox"})
        await inbox.advance(timedelta(seconds=0.5))
        await inbox.tend()
    rows = await inbox.conn.fetch("select distinct status from webhook_events")
    assert [row["status"] for row in rows] == ["success"]
    assert len(tried) == 6, "each was tried at once, and once more when all was well again"
    assert await inbox.conn.fetchval("select count(*) from webhook.inbox_dead") == 0
