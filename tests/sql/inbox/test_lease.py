"""Claiming and ending: one owner at a time, exactly the allowed attempts, nothing lost."""

from datetime import timedelta
from uuid import UUID, uuid4

import asyncpg
import pytest
from tests.support.inbox import Leased, SqlInbox
from tests.support.interleave import Stage

from penstock.inbox import store
from penstock.inbox.queue import Line
from penstock.kernel.database import translated
from penstock.kernel.errors import AppendOnly, BadLease, LeaseLost

SCHEDULE_S = (2, 5, 15, 60)


async def test_two_claims_share_no_event(inbox: SqlInbox, stripe: UUID) -> None:
    ids = await inbox.send(stripe, *"abcde")
    first, second = await inbox.claim(3), await inbox.claim(3)
    assert [item.id for item in first + second] == ids


async def test_a_claim_of_every_line_tells_which_one_fits(inbox: SqlInbox, stripe: UUID) -> None:
    other = await inbox.source("other")
    for kind in ("charge.paid", "charge.refunded", "payment_intent.succeeded", "a%c"):
        await inbox.send(stripe, kind, kind=kind)
    await inbox.send(other, "x", kind="charge.paid")
    lines = [Line("stripe", "charge.paid"), Line("stripe", "charge.*"), Line("stripe", "a%*")]
    found = await inbox.claim(
        sources=[line.source for line in lines],
        patterns=[line.like for line in lines],
        full=[False] * 3,
    )
    assert {(item.event_type, item.route) for item in found} == {
        ("charge.paid", 1),
        ("charge.refunded", 2),
        ("a%c", 3),
    }


async def test_an_event_waits_for_its_own_line_and_not_for_a_wider_one(
    inbox: SqlInbox, stripe: UUID
) -> None:
    await inbox.send(stripe, "a", kind="charge.paid")
    await inbox.send(stripe, "b", kind="charge.refunded")
    found = await inbox.claim(
        sources=["stripe"] * 2, patterns=["charge.paid", "%"], full=[True, False]
    )
    assert [item.event_id for item in found] == ["b"]


async def test_a_paused_source_is_left_alone_and_a_paused_queue_too(
    inbox: SqlInbox, stripe: UUID
) -> None:
    other = await inbox.source("other")
    await inbox.send(stripe, "a")
    await inbox.send(other, "b")
    await inbox.conn.execute("select penstock.pause_target('source/stripe', 'because')")
    assert [item.event_id for item in await inbox.claim()] == ["b"]
    await inbox.conn.execute("select penstock.resume_target('source/stripe', 'because')")
    await inbox.conn.execute("select penstock.pause_target('inbox', 'because')")
    assert await inbox.claim() == []
    assert await inbox.conn.fetch("select * from webhook.claim_next_event()") == []


async def test_a_claim_needs_a_token(inbox: SqlInbox) -> None:
    with pytest.raises(BadLease), translated():
        await inbox.conn.fetch("select * from webhook.inbox_claim(10, null)")


async def test_a_finished_event_is_a_success_and_counted_once(
    inbox: SqlInbox, stripe: UUID
) -> None:
    (event,) = await inbox.send(stripe, "a")
    items = await inbox.claim()
    assert await inbox.finish(items) == []
    assert await inbox.finish(items) == []  # the answer to the first call may have been lost
    row = await inbox.row(event)
    assert (row["status"], row["attempts"]) == ("success", 1)
    assert row["processed_at"] is not None
    assert row["lease_token"] is None
    assert await inbox.counter("processing", "success") == 1
    assert await inbox.conn.fetchval("select count(*) from penstock.late_results") == 0


async def test_a_worker_that_died_loses_its_event_to_the_next(
    inbox: SqlInbox, stripe: UUID
) -> None:
    (event,) = await inbox.send(stripe, "a")
    old = await inbox.claim()
    await inbox.advance(timedelta(seconds=31))
    assert (await inbox.tend())[0] == 1
    new = await inbox.claim()
    assert (new[0].id, new[0].epoch) == (event, 2)
    assert await inbox.finish(old) == [event]
    assert await inbox.status("a") == "processing"
    assert await inbox.finish(new) == []
    late = await inbox.conn.fetchrow("select item_id, verdict from penstock.late_results")
    assert late is not None
    assert tuple(late) == (event, "done")


async def test_a_lease_can_be_extended_only_by_its_holder(inbox: SqlInbox, stripe: UUID) -> None:
    (event,) = await inbox.send(stripe, "a")
    (held,) = await inbox.claim()
    assert await store.extend(inbox.conn, [event], [uuid4()]) == ([event], 30)
    await inbox.advance(timedelta(seconds=20))
    assert await store.extend(inbox.conn, [event], [held.token]) == ([], 30)
    await inbox.advance(timedelta(seconds=20))
    assert (await inbox.tend())[0] == 0


async def test_a_released_attempt_does_not_count(inbox: SqlInbox, stripe: UUID) -> None:
    (event,) = await inbox.send(stripe, "a")
    (held,) = await inbox.claim()
    assert await store.release(inbox.conn, [event], [held.token]) == 1
    row = await inbox.row(event)
    assert (row["status"], row["attempts"], row["total_attempts"]) == ("pending", 0, 1)


async def test_retries_follow_the_schedule_and_end_after_exactly_five(
    inbox: SqlInbox, stripe: UUID
) -> None:
    (event,) = await inbox.send(stripe, "a")
    for attempt, wait_s in enumerate(SCHEDULE_S, start=1):
        (item,) = await inbox.claim()
        assert item.attempts == attempt
        await inbox.fail([item], delay_s=None)
        row = await inbox.row(event)
        assert row["status"] == "failed"
        waits = row["next_attempt_at"] - await inbox.conn.fetchval("select penstock.clock()")
        assert wait_s - 1 < waits.total_seconds() <= wait_s * 1.25
        await inbox.advance(timedelta(seconds=wait_s - 1))
        await inbox.tend()
        assert await inbox.claim() == []
        await inbox.advance(timedelta(seconds=wait_s * 0.25 + 1))
        assert (await inbox.tend())[1] == 1
    await inbox.fail(await inbox.claim(), delay_s=None)
    row = await inbox.row(event)
    assert (row["status"], row["error_code"], row["attempts"]) == (
        "dead_letter",
        "max_attempts_exceeded",
        5,
    )
    assert await inbox.conn.fetchval("select count(*) from webhook_attempts") == 5
    assert await inbox.counter("processing", "error") == 5
    assert await inbox.counter("dead_letter", "max_attempts_exceeded") == 1


async def test_an_event_that_kills_every_worker_dies_after_its_attempts(
    inbox: SqlInbox, stripe: UUID
) -> None:
    (event,) = await inbox.send(stripe, "a")
    for _ in range(5):
        assert len(await inbox.claim()) == 1
        await inbox.advance(timedelta(seconds=31))
        await inbox.tend(sweep=True)
        await inbox.tend(sweep=True)
    row = await inbox.row(event)
    assert (row["status"], row["error_code"], row["attempts"]) == ("dead_letter", "ZOMBIE_LIMIT", 5)


async def _suspect(inbox: SqlInbox, *sent: tuple[UUID, str]) -> None:
    """One suspect of each source and type, waiting."""
    await inbox.policy(max_attempts=2)
    for number, (source, kind) in enumerate(sent):
        await inbox.send(source, f"{number}", kind=kind)
    await inbox.claim()
    await inbox.advance(timedelta(seconds=31))
    await inbox.tend()


async def test_a_suspect_that_nobody_takes_does_not_block_other_types(
    inbox: SqlInbox, stripe: UUID
) -> None:
    await _suspect(inbox, (stripe, "unserved"), (stripe, "served"), (stripe, "served"))
    await inbox.tend(sweep=True)
    for _ in range(2):
        await inbox.tend(sweep=True)
        (item,) = await inbox.claim(sources=["stripe"], patterns=["served"], full=[False])
        await inbox.finish([item])


async def test_a_suspect_of_a_paused_source_waits_and_blocks_nobody(
    inbox: SqlInbox, stripe: UUID
) -> None:
    other = await inbox.source("other")
    await _suspect(inbox, (stripe, "t"), (other, "t"))
    await inbox.conn.execute("select penstock.pause_target('source/stripe', 'because')")
    await inbox.tend(sweep=True)
    waiting = "select event_id from webhook_events where next_attempt_at is not null"
    assert [row["event_id"] for row in await inbox.conn.fetch(waiting)] == ["0"]
    assert [item.event_id for item in await inbox.claim()] == ["1"]


async def test_the_net_finds_a_suspect_below_the_floor(inbox: SqlInbox, stripe: UUID) -> None:
    await _suspect(inbox, (stripe, "t"))
    await inbox.conn.execute("update webhook_events set next_attempt_at = '2000-01-01'")
    await inbox.conn.execute(
        "select setval('penstock.inbox_due', penstock.milliseconds(penstock.clock()) - 1000)"
    )
    assert await inbox.conn.fetchval("select webhook.inbox_bring_suspect(false)") == 0
    assert await inbox.conn.fetchval("select webhook.inbox_bring_suspect(true)") == 1


async def test_reject_and_unknown_need_a_person_at_once(inbox: SqlInbox, stripe: UUID) -> None:
    await inbox.send(stripe, "a", "b")
    one, two = await inbox.claim()
    await inbox.fail([one], "reject", code="signature_invalid")
    await inbox.fail([two], "unknown", code="UNKNOWN")
    rows = await inbox.conn.fetch("select state, error_code from webhook.inbox_dead order by 1")
    assert [tuple(row) for row in rows] == [("DEAD", "signature_invalid"), ("HELD", "UNKNOWN")]
    await inbox.advance(timedelta(days=400))
    await inbox.tend(sweep=True)
    await inbox.conn.execute("select webhook.inbox_keep(), webhook.inbox_partitions()")
    assert await inbox.conn.fetchval("select count(*) from webhook.inbox_dead") == 2


async def test_finishing_in_a_transaction_of_ones_own_undoes_it_when_the_lease_is_lost(
    inbox: SqlInbox, stripe: UUID
) -> None:
    await inbox.send(stripe, "a")
    (old,) = await inbox.claim()
    await inbox.advance(timedelta(seconds=31))
    await inbox.tend()

    async def effect_and_finish() -> None:
        async with inbox.conn.transaction():
            await inbox.conn.execute(
                "insert into webhook_side_effects (provider, event_id) values ('p', 'a')"
            )
            await store.finish_strict(inbox.conn, [old.id], [old.token])

    with pytest.raises(LeaseLost):
        await effect_and_finish()
    assert await inbox.conn.fetchval("select count(*) from webhook_side_effects") == 0


async def test_a_late_commit_below_the_watermark_is_found(
    inbox: SqlInbox, stripe: UUID, database_url: str
) -> None:
    async with Stage(database_url) as stage:
        late, _ = await stage.sessions("late", "other")
        await late.begin()
        await late.run(
            "insert into webhook_events (webhook_id, event_id, payload) values ($1, 'late', '{}')",
            stripe,
        )
        await inbox.send(stripe, "early")
        await inbox.finish(await inbox.claim())
        await inbox.tend(sweep=True)
        await late.commit()
    for _ in range(3):
        await inbox.tend(sweep=True)
    assert [item.event_id for item in await inbox.claim()] == ["late"]


async def test_attempts_are_append_only(inbox: SqlInbox, stripe: UUID) -> None:
    await inbox.send(stripe, "a")
    await inbox.fail(await inbox.claim())
    for statement in (
        "update webhook_attempts set outcome = 'RETRY'",
        "delete from webhook_attempts",
        "truncate webhook_attempts",
    ):
        with pytest.raises(AppendOnly), translated():
            await inbox.conn.execute(statement)


async def test_no_row_without_a_status_or_attempts(inbox: SqlInbox, stripe: UUID) -> None:
    await inbox.send(stripe, "a")
    for column in ("status", "attempts", "raw_body", "body_sha256"):
        with pytest.raises(asyncpg.NotNullViolationError):
            await inbox.conn.execute(f"update webhook_events set {column} = null")


async def test_effects_are_begun_once_with_one_key_and_done_after_the_answer(
    inbox: SqlInbox, stripe: UUID
) -> None:
    (event,) = await inbox.send(stripe, "a")
    (item,) = await inbox.claim()
    begun = await store.begin_effect(inbox.conn, event, item.token, name="mail", key="k1")
    assert dict(begun) == {"state": "started", "idempotency_key": "k1", "external_ref": None}
    await inbox.fail([item])
    (item,) = await _claimed_again(inbox)
    again = await store.begin_effect(inbox.conn, event, item.token, name="mail", key="k2")
    assert (again["state"], again["idempotency_key"]) == ("started", "k1")
    assert await store.end_effect(inbox.conn, event, name="mail", key="k1", external_ref="msg_1")
    done = await store.begin_effect(inbox.conn, event, item.token, name="mail", key="k1")
    assert (done["state"], done["external_ref"]) == ("done", "msg_1")
    with pytest.raises(LeaseLost):
        await store.begin_effect(inbox.conn, event, uuid4(), name="other", key="k1")


async def _claimed_again(inbox: SqlInbox) -> list[Leased]:
    await inbox.advance(timedelta(seconds=1))
    await inbox.tend()
    return await inbox.claim()
