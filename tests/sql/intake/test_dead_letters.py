"""Listing, replaying and discarding dead letters: audited, fenced, atomic."""

import json
from uuid import UUID

import asyncpg
import pytest
from tests.support.intake import SqlIntake


async def bury(intake: SqlIntake, *, started: bool = False, pool: str = "demo") -> tuple[int, UUID]:
    """A dead letter and its slot; the commit has started or not."""
    await intake.stock(1, pool)
    url = None if started else "https://example.org/v"
    await intake.configure(pool, validation_webhook_url=url)
    await intake.buy("u", pool=pool)
    (row,) = await intake.claim()
    dead = await intake.reject(row, "HTTP_500")
    assert dead is not None
    slot: UUID = row["resource_id"]
    return dead, slot


async def audits(intake: SqlIntake, operation: str) -> int:
    found: int = await intake.conn.fetchval(
        "select count(*) from audit.audit_logs where operation = $1", operation
    )
    return found


async def test_listing_hides_nothing_and_counts_as_no_read(intake: SqlIntake) -> None:
    dead = [await bury(intake, pool=pool) for pool in ("a", "b", "a")]
    listing = "select * from intake_dlq_list($1, $2, $3)"
    for _ in range(2):
        rows = await intake.conn.fetch(listing, "a", 0, 100)
        assert [row["msg_id"] for row in rows] == [dead[0][0], dead[2][0]]
    assert [row["error_code"] for row in rows] == ["HTTP_500", "HTTP_500"]
    assert "message" not in rows[0], "metadata only"
    (page,) = await intake.conn.fetch(listing, "a", dead[0][0], 1)
    assert page["msg_id"] == dead[2][0]
    assert await intake.conn.fetchval("select max(read_ct) from pgmq.q_intake_dlq") == 0


async def test_seeing_a_payload_is_audited(intake: SqlIntake) -> None:
    dead, _ = await bury(intake)
    row = await intake.conn.fetchrow("select * from intake_dlq_show($1, 'case 7', 'ann')", [dead])
    assert row is not None
    assert json.loads(row["message"])["user_id"] == "u"
    assert await audits(intake, "show") == 1
    with pytest.raises(asyncpg.PostgresError, match="needs a reason"):
        await intake.conn.fetch("select * from intake_dlq_show($1, '')", [dead])
    assert await intake.conn.fetch("select * from intake_dlq_show('{99}', 'x')") == []


async def test_replay_moves_a_message_back_with_a_new_cycle(intake: SqlIntake) -> None:
    dead, slot = await bury(intake)
    assert await intake.replay(dead) == ["replayed"]
    assert (await intake.depth(), await intake.depth("intake_dlq")) == (1, 0)
    (row,) = await intake.claim()
    assert (row["resource_id"], row["read_ct"]) == (slot, 1)
    message = json.loads(row["message"])
    assert (message["replay_count"], message["total_attempts"]) == (1, 1)
    assert "original_msg_id" not in message
    assert await audits(intake, "replay") == 1
    assert await intake.replay(dead) == ["gone"]
    assert await audits(intake, "replay") == 1, "no action, no audit row"


async def test_a_message_whose_slot_went_to_another_is_not_replayed(intake: SqlIntake) -> None:
    dead, slot = await bury(intake)
    await intake.conn.execute("update inventory_slots set status = 'AVAILABLE' where id = $1", slot)
    assert await intake.buy("next") == slot
    assert await intake.replay(dead) == ["not_replayable"]
    assert await intake.depth("intake_dlq") == 1
    assert await intake.discard(dead) == ["removed"]
    assert (await intake.slot(slot))["locked_by"] == "next"


async def test_a_confirmed_reservation_needs_no_replay(intake: SqlIntake) -> None:
    dead, slot = await bury(intake, started=True)
    await intake.conn.execute("update inventory_slots set status = 'CONSUMED' where id = $1", slot)
    assert await intake.replay(dead) == ["sold"]
    assert await intake.depth("intake_dlq") == 0


async def test_discard_frees_the_slot_before_the_commit_started(intake: SqlIntake) -> None:
    dead, slot = await bury(intake)
    assert await intake.discard(dead) == ["released"]
    assert await intake.depth("intake_dlq") == 0
    assert await intake.buy("next") == slot
    assert await intake.discard(dead) == ["gone"]
    row = await intake.conn.fetchrow("select * from audit.audit_logs where operation = 'discard'")
    assert row is not None
    assert json.loads(row["row_data"])["message"]["user_id"] == "u", "the last trace of it"


async def test_discard_after_the_commit_started_needs_the_ledgers_word(intake: SqlIntake) -> None:
    dead, slot = await bury(intake, started=True)
    reservation = (await intake.slot(slot))["reservation_id"]
    assert await intake.discard(dead) == ["started"]
    assert (await intake.depth("intake_dlq"), await audits(intake, "discard")) == (1, 0)
    assert await intake.discard(dead, cancelled=[reservation]) == ["retired"]
    offered = await intake.buy("next")
    assert offered not in {None, slot}
    assert await intake.violations() == []


async def test_operators_use_the_verbs_that_all_queues_share(intake: SqlIntake) -> None:
    await bury(intake)
    await bury(intake)
    await intake.conn.execute("set role penstock_operator")
    rows = await intake.conn.fetch("select * from penstock.dead_letters where queue = 'intake'")
    assert {row["topic"] for row in rows} == {"demo"}
    ids = [row["id"] for row in rows]
    one = await intake.conn.fetch("select * from intake_replay_items($1, 'test')", ids[:1])
    assert [row["id"] for row in one] == ids[:1]
    two = await intake.conn.fetch("select * from intake_discard_items($1, 'test')", ids)
    assert [row["id"] for row in two] == ids[1:]
    story = json.loads(await intake.conn.fetchval("select intake_story($1)", ids[0]))
    assert (story["state"], len(story["audit"])) == ("READY", 1)
    stats = await intake.conn.fetchrow("select * from penstock.queue_stats where queue = 'intake'")
    assert stats is not None
    assert (stats["ready"], stats["dead"]) == (1, 0)


async def test_a_reason_is_required(intake: SqlIntake) -> None:
    dead, _ = await bury(intake)
    for verb in ("intake_replay", "intake_discard"):
        with pytest.raises(asyncpg.PostgresError) as caught:
            await intake.conn.fetch(f"select * from {verb}($1, ' ')", [dead])
        assert caught.value.sqlstate == "PN205"
    assert await intake.depth("intake_dlq") == 1


async def test_reconcile_makes_the_engine_agree_with_the_ledger(intake: SqlIntake) -> None:
    await intake.stock(4)
    await intake.configure()
    free = await intake.conn.fetchval("select id from inventory_slots order by ord desc limit 1")
    held, taken, sold = await intake.reserve("a", "b", "c")
    await intake.complete(*[row for row in await intake.claim() if row["user_id"] == "c"])
    lost = await intake.conn.fetchval("select gen_random_uuid()")
    other = await intake.conn.fetchval("select gen_random_uuid()")

    def ticket(resource: UUID | None, user: str, reservation: UUID | None) -> dict[str, str]:
        return {
            "resource_id": str(resource),
            "pool_id": "demo",
            "user_id": user,
            "reservation_id": str(reservation),
            "confirmed_at": "2026-01-01T00:00:00Z",
        }

    tickets = [
        ticket(free, "z", other),
        ticket(held.resource_id, "a", held.reservation_id),
        ticket(taken.resource_id, "x", lost),
        ticket(sold.resource_id, "c", sold.reservation_id),
        ticket(lost, "y", lost),
    ]
    rows = await intake.conn.fetch("select * from intake_reconcile($1)", json.dumps(tickets))
    found = {row["resource_id"]: row["outcome"] for row in rows}
    assert found == {
        free: "consumed",
        held.resource_id: "consumed",
        taken.resource_id: "corrected",
        sold.resource_id: "agreed",
        lost: "restored",
    }
    rows = await intake.conn.fetch("select * from intake_reconcile($1)", json.dumps(tickets))
    assert {row["outcome"] for row in rows} == {"agreed"}
    check = "select * from intake_prove_tickets($1, $2, $3)"
    arguments = (
        [UUID(t["resource_id"]) for t in tickets],
        [t["user_id"] for t in tickets],
        [UUID(t["reservation_id"]) for t in tickets],
    )
    assert await intake.conn.fetch(check, *arguments) == []
    assert await intake.buy("late") is None


async def test_prove_finds_what_is_wrong(intake: SqlIntake) -> None:
    await intake.stock(4)
    await intake.configure()
    rows = await intake.reserve("a", "b", "c")
    assert await intake.violations() == []
    await intake.conn.execute("delete from inventory_slots where status = 'AVAILABLE'")
    await intake.conn.execute("select intake_queue_delete('{1}')")
    await intake.conn.execute(
        "select intake_queue_send(message) from pgmq.q_intake_queue where msg_id = 2"
    )
    await intake.conn.execute(
        "update inventory_slots set status = 'AVAILABLE' where id = $1", rows[2].resource_id
    )
    found = await intake.violations()
    assert sorted(text.split()[0] for text in found) == ["I4", "I5", "I5", "I5"]
    ticket = ([rows[2].resource_id, rows[0].resource_id], ["c", "z"], [None, None])
    check = await intake.conn.fetch("select * from intake_prove_tickets($1, $2, $3)", *ticket)
    assert sorted(row["invariant"] for row in check) == ["I1", "I3"]


async def test_the_demo_pool_is_seeded_once(intake: SqlIntake) -> None:
    assert await intake.conn.fetchval("select intake_seed_demo()") == 1000
    assert await intake.conn.fetchval("select intake_seed_demo()") == 0
    row = await intake.conn.fetchrow("select * from engine_config")
    assert tuple(row or ())[:5] == ("demo_concert_2026", 100, 45, 10, True)
    assert await intake.counts("demo_concert_2026") == (1000, 0, 0)
