"""The reaper frees what nobody speaks for, and nothing else."""

import json
from uuid import UUID

import asyncpg
import pytest
from tests.support.intake import POOL, SqlIntake

REAP = "select reap_orphaned_slots($1::text::interval)"


async def stale(intake: SqlIntake, user: str = "u") -> UUID:
    """A reserved slot, older than the threshold, whose message is lost."""
    found: UUID = await intake.conn.fetchval(
        """
        insert into inventory_slots (pool_id, status, locked_by, locked_at)
        values ($1, 'RESERVED', $2, now() - interval '11 minutes') returning id
        """,
        POOL,
        user,
    )
    return found


async def test_a_stale_slot_without_message_comes_back_on_offer(intake: SqlIntake) -> None:
    slot_id = await stale(intake)
    assert await intake.conn.fetchval("select reap_orphaned_slots()") == 1
    slot = await intake.slot(slot_id)
    assert (slot["status"], slot["locked_by"], slot["locked_at"]) == ("AVAILABLE", None, None)
    assert await intake.buy("next") == slot_id


async def test_a_young_slot_is_left_alone(intake: SqlIntake) -> None:
    await stale(intake)
    assert await intake.conn.fetchval(REAP, "12 minutes") == 0


async def test_a_message_in_the_queue_holds_the_slot(intake: SqlIntake) -> None:
    slot_id = await stale(intake)
    message = json.dumps({"resource_id": str(slot_id), "pool_id": POOL})
    await intake.conn.execute("select intake_queue_send($1)", message)
    assert await intake.conn.fetchval("select reap_orphaned_slots()") == 0
    assert (await intake.slot(slot_id))["status"] == "RESERVED"


async def test_a_message_of_an_older_reservation_does_not_hold_it(intake: SqlIntake) -> None:
    slot_id = await stale(intake)
    message = {"resource_id": str(slot_id), "reservation_id": str(slot_id)}
    await intake.conn.execute("select intake_queue_send($1)", json.dumps(message))
    assert await intake.conn.fetchval("select reap_orphaned_slots()") == 1


async def test_a_dead_letter_holds_the_slot(intake: SqlIntake) -> None:
    """Freed and sold again, a replay would commit for the first buyer."""
    await intake.stock(1)
    await intake.configure(validation_webhook_url="https://example.org/v")
    await intake.buy("u")
    (row,) = await intake.claim()
    dead = await intake.reject(row)
    assert dead is not None
    await intake.shift(3600)
    assert await intake.conn.fetchval("select reap_orphaned_slots()") == 0
    assert await intake.buy("next") is None
    assert await intake.replay(dead) == ["replayed"]
    assert await intake.violations() == []


async def test_a_started_commit_is_never_reaped(intake: SqlIntake) -> None:
    await intake.stock(1)
    await intake.buy("u")
    (row,) = await intake.claim()
    assert row["commit_started"]
    await intake.conn.execute("select intake_queue_delete($1)", [row["msg_id"]])
    await intake.shift(3600)
    assert await intake.conn.fetchval("select reap_orphaned_slots()") == 0


async def test_nothing_is_reaped_while_intake_is_paused(intake: SqlIntake) -> None:
    await stale(intake)
    await intake.conn.execute("select penstock.pause_target('intake', 'restore under way')")
    assert await intake.conn.fetchval("select reap_orphaned_slots()") == 0


@pytest.mark.parametrize("threshold", [None, "-1 second"])
async def test_a_senseless_threshold_is_refused(intake: SqlIntake, threshold: str | None) -> None:
    with pytest.raises(asyncpg.InvalidParameterValueError):
        await intake.conn.fetchval(REAP, threshold)


async def test_a_returned_slot_is_found_although_the_watermark_had_passed_it(
    intake: SqlIntake,
) -> None:
    slot_id = await stale(intake)
    await intake.stock(1)
    await intake.buy("first")
    await intake.tend()
    assert await intake.buy("second") is None
    assert await intake.conn.fetchval("select reap_orphaned_slots()") == 1
    assert await intake.buy("second") == slot_id
