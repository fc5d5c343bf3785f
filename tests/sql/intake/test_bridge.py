"""What the bridge needs: lease, fence, finish, retry, give back, release."""

import json
from typing import Any

import asyncpg
import pytest
from tests.support.intake import POOL, SqlIntake


async def sell(intake: SqlIntake, count: int = 1, **settings: object) -> None:
    await intake.stock(count)
    await intake.configure(**settings)
    await intake.reserve(*(f"u{n}" for n in range(count)))


async def retry(intake: SqlIntake, row: asyncpg.Record, delay_s: float) -> list[Any]:
    return await intake.conn.fetch(
        "select * from intake_retry($1, $2, $3, $4, $5)",
        [row["msg_id"]],
        [row["read_ct"]],
        [delay_s],
        ["HTTP_503"],
        ["busy"],
    )


async def release(intake: SqlIntake, row: asyncpg.Record, *, cancelled: bool = False) -> Any:
    return await intake.conn.fetchrow(
        "select * from intake_release($1, $2, 'refused', $3)",
        [row["resource_id"]],
        [row["reservation_id"]],
        [row["reservation_id"]] if cancelled else [],
    )


async def test_a_claim_leases_and_fences_and_brings_the_pools_settings(intake: SqlIntake) -> None:
    await sell(intake, 2, visibility_timeout_sec=7, commit_webhook_url="https://example.org/c")
    rows = await intake.claim(10)
    assert [row["read_ct"] for row in rows] == [1, 1]
    first = rows[0]
    assert (first["slot"], first["commit_started"], first["exhausted"]) == ("reserved", True, False)
    assert (first["lease_s"], first["commit_webhook_url"]) == (7, "https://example.org/c")
    assert first["configured"]
    assert json.loads(first["message"])["resource_id"] == str(first["resource_id"])
    assert (await intake.slot(first["resource_id"]))["commit_started_at"] is not None
    assert await intake.claim(10) == []


async def test_a_lease_that_ends_brings_the_message_back(intake: SqlIntake) -> None:
    await sell(intake)
    await intake.claim()
    await intake.tend()
    await intake.shift(46)
    await intake.tend()
    (row,) = await intake.claim()
    assert row["read_ct"] == 2


async def test_with_validation_the_fence_waits_for_the_yes(intake: SqlIntake) -> None:
    await sell(intake, validation_webhook_url="https://example.org/v")
    (row,) = await intake.claim(lease_s=1)
    assert (row["commit_started"], row["validated"]) == (False, False)
    arguments = ([row["resource_id"]], [row["reservation_id"]])
    assert len(await intake.conn.fetch("select * from intake_validated($1, $2)", *arguments)) == 1
    await intake.tend()
    await intake.shift(2)
    await intake.tend()
    (row,) = await intake.claim()
    assert (row["commit_started"], row["validated"]) == (True, True), "a retry does not ask again"


async def test_begin_commit_refuses_a_foreign_reservation(intake: SqlIntake) -> None:
    await sell(intake, validation_webhook_url="https://example.org/v")
    (row,) = await intake.claim()
    begin = "select * from intake_begin_commit($1, $2)"
    wrong = await intake.conn.fetchval("select gen_random_uuid()")
    assert await intake.conn.fetch(begin, [row["resource_id"]], [wrong]) == []
    good = await intake.conn.fetch(begin, [row["resource_id"]], [row["reservation_id"]])
    assert good[0][0] == row["resource_id"]


async def test_complete_consumes_and_removes_together(intake: SqlIntake) -> None:
    await sell(intake, 3)
    rows = await intake.claim()
    assert await intake.complete(*rows[:2]) == ["consumed", "consumed"]
    assert await intake.complete(rows[0]) == ["already"]
    assert await intake.counts() == (0, 1, 2)
    assert await intake.depth() == 1
    assert (await intake.slot(rows[0]["resource_id"]))["consumed_at"] is not None


async def test_a_stale_completion_changes_nothing_and_is_kept(intake: SqlIntake) -> None:
    await sell(intake)
    (row,) = await intake.claim()
    assert (await release(intake, row, cancelled=True))["outcome"] == "retired"
    assert await intake.complete(row) == ["stale"]
    assert await intake.counts() == (1, 0, 0)
    late = await intake.conn.fetchrow("select * from penstock.late_results")
    assert late is not None
    assert late["item_id"] == row["reservation_id"]


async def test_a_completion_takes_its_dead_letter_along(intake: SqlIntake) -> None:
    """The commit was slow, another worker dead-lettered the message meanwhile."""
    await sell(intake)
    (row,) = await intake.claim()
    assert await intake.reject(row) is not None
    assert await intake.complete(row) == ["consumed"]
    assert await intake.depth("intake_dlq") == 0
    assert await intake.violations() == []


async def test_a_message_of_a_consumed_slot_says_so(intake: SqlIntake) -> None:
    await sell(intake)
    (row,) = await intake.claim()
    await intake.conn.execute("select intake_queue_send($1)", row["message"])
    await intake.complete(row)
    (again,) = await intake.claim()
    assert again["slot"] == "consumed"
    assert await intake.complete(again) == ["already"]
    assert await intake.depth() == 0


async def test_a_message_without_slot_or_config_is_harmless(intake: SqlIntake) -> None:
    for payload in ("{}", '{"resource_id": "x", "pool_id": "p"}', '{"pool_id": 7}'):
        await intake.conn.execute("select intake_queue_send($1)", payload)
    rows = await intake.claim()
    assert [(row["slot"], row["configured"]) for row in rows] == [("foreign", False)] * 3
    assert [row["commit_started"] for row in rows] == [False] * 3


async def test_without_config_a_claim_does_not_start_the_commit(intake: SqlIntake) -> None:
    await sell(intake)
    await intake.conn.execute("delete from engine_config")
    (row,) = await intake.claim()
    assert (row["configured"], row["commit_started"], row["slot"]) == (False, False, "reserved")


async def test_an_inactive_pool_is_still_confirmed(intake: SqlIntake) -> None:
    await sell(intake)
    await intake.configure(is_active=False)
    (row,) = await intake.claim()
    assert row["commit_started"]


async def test_used_up_attempts_are_told_and_not_fenced(intake: SqlIntake) -> None:
    await sell(intake, max_retries=1)
    (row,) = await intake.claim()
    assert not row["exhausted"]
    await retry(intake, row, 0)
    (row,) = await intake.claim()
    assert row["exhausted"]


async def test_extend_is_fenced_and_never_shortens(intake: SqlIntake) -> None:
    await sell(intake, 2)
    first, second = await intake.claim()
    extend = "select * from intake_extend($1, $2, $3)"
    held = await intake.conn.fetch(extend, [first["msg_id"], second["msg_id"]], [1, 2], 90)
    assert [row["msg_id"] for row in held] == [first["msg_id"]]
    assert held[0]["vt"] > first["vt"]
    (short,) = await intake.conn.fetch(extend, [first["msg_id"]], [1], 1)
    assert short["vt"] == held[0]["vt"]


async def test_a_retry_waits_and_keeps_its_reason(intake: SqlIntake) -> None:
    await sell(intake)
    (row,) = await intake.claim()
    assert len(await retry(intake, row, 60)) == 1
    await intake.tend()
    assert await intake.claim() == []
    stats = await intake.conn.fetchrow("select * from penstock_intake.stats")
    assert stats is not None
    assert (stats["scheduled"], stats["leased"]) == (1, 0)
    await intake.shift(61)
    await intake.tend()
    (row,) = await intake.claim()
    assert json.loads(row["headers"])["error_code"] == "HTTP_503"
    stats = await intake.conn.fetchrow("select * from penstock_intake.stats")
    assert stats is not None
    assert (stats["scheduled"], stats["leased"]) == (0, 1)


async def test_a_retry_of_a_lost_lease_changes_nothing(intake: SqlIntake) -> None:
    await sell(intake)
    (row,) = await intake.claim(lease_s=1)
    await intake.shift(2)
    await intake.claim()
    assert await retry(intake, row, 0) == []


async def test_giving_back_does_not_count_and_works_once(intake: SqlIntake) -> None:
    await sell(intake)
    (row,) = await intake.claim()
    await intake.tend()
    give = "select * from intake_give_back($1, $2, $3)"
    arguments = ([row["msg_id"]], [row["read_ct"]], [row["vt"]])
    assert len(await intake.conn.fetch(give, *arguments)) == 1
    (again,) = await intake.claim()
    assert again["read_ct"] == 1
    assert await intake.conn.fetch(give, *arguments) == [], "the same call again is not the holder"


async def test_a_refused_reservation_frees_the_same_id_before_the_commit(
    intake: SqlIntake,
) -> None:
    await sell(intake, validation_webhook_url="https://example.org/v")
    (row,) = await intake.claim()
    found = await release(intake, row)
    assert (found["outcome"], found["offered_id"]) == ("released", row["resource_id"])
    assert await intake.depth() == 0
    assert await intake.buy("next") == row["resource_id"]


async def test_after_the_commit_began_only_a_new_id_is_offered(intake: SqlIntake) -> None:
    await sell(intake)
    (row,) = await intake.claim()
    assert (await release(intake, row))["outcome"] == "started"
    assert await intake.depth() == 1
    found = await release(intake, row, cancelled=True)
    assert found["outcome"] == "retired"
    assert found["offered_id"] != row["resource_id"]
    assert await intake.buy("next") == found["offered_id"]
    assert await intake.violations() == []
    assert (await release(intake, row, cancelled=True))["outcome"] == "gone"
    status = "select state from intake_status($1)"
    assert await intake.conn.fetchval(status, row["reservation_id"]) == "RELEASED"
    with pytest.raises(asyncpg.PostgresError, match="never offered again"):
        await intake.conn.execute(
            "select intake_pool_stock($1, null, 'test', null, $2)", POOL, [row["resource_id"]]
        )


async def test_a_sold_slot_is_not_released(intake: SqlIntake) -> None:
    await sell(intake)
    (row,) = await intake.claim()
    await intake.complete(row)
    assert (await release(intake, row, cancelled=True))["outcome"] == "sold"


async def test_a_hold_that_ran_out_comes_back_on_offer(intake: SqlIntake) -> None:
    await sell(intake, 2, hold_s=60)
    (row, *_) = await intake.claim(1)
    assert await intake.conn.fetchval("select intake_expire_holds()") == 0
    await intake.shift(61)
    assert await intake.conn.fetchval("select intake_expire_holds()") == 1
    assert await intake.counts() == (1, 1, 0), "the started commit is left to its end"
    assert (await intake.slot(row["resource_id"]))["status"] == "RESERVED"
    assert await intake.violations() == []


async def test_a_claim_tells_that_the_hold_is_over(intake: SqlIntake) -> None:
    await sell(intake, hold_s=60)
    await intake.shift(61)
    (row,) = await intake.claim()
    assert (row["hold_over"], row["commit_started"]) == (True, False)
    begin = "select * from intake_begin_commit($1, $2)"
    assert await intake.conn.fetch(begin, [row["resource_id"]], [row["reservation_id"]]) == []


async def test_a_paused_queue_gives_nothing(intake: SqlIntake) -> None:
    await sell(intake)
    assert await intake.conn.fetchval("select intake_ready()")
    await intake.conn.execute("select penstock.pause_target('intake', 'test')")
    assert await intake.claim() == []
    assert not await intake.conn.fetchval("select intake_ready()")
    await intake.conn.execute("select penstock.resume_target('intake', 'test')")
    assert len(await intake.claim()) == 1


async def test_a_paused_pool_steps_aside_and_comes_back(intake: SqlIntake) -> None:
    await sell(intake, 2)
    await intake.stock(1, "other")
    await intake.reserve("v", pool="other")
    await intake.conn.execute("select penstock.pause_target('pool/demo', 'test')")
    assert [row["pool_id"] for row in await intake.claim()] == ["other"]
    await intake.tend()
    await intake.conn.execute("select penstock.resume_target('pool/demo', 'test')")
    await intake.shift(6)
    await intake.tend()
    rows = await intake.claim()
    assert [(row["pool_id"], row["read_ct"]) for row in rows] == [("demo", 1), ("demo", 1)]


async def test_a_message_that_commits_late_is_swept_up(
    intake: SqlIntake, database_url: str
) -> None:
    await intake.stock(3)
    slow = await asyncpg.connect(database_url)
    transaction = slow.transaction()
    await transaction.start()
    await SqlIntake(slow).buy("slow")
    await intake.buy("quick")
    assert len(await intake.claim()) == 1
    await intake.tend()
    assert await intake.conn.fetchval("select pg_sequence_last_value('penstock.intake_wm')") == 2
    await transaction.commit()
    await slow.close()
    assert not await intake.claim(), "below the watermark"
    assert (await intake.tend())["swept"] == 1
    assert [row["user_id"] for row in await intake.claim()] == ["slow"]


async def test_a_clock_that_is_set_back_loses_no_message(intake: SqlIntake) -> None:
    await intake.stock(1)
    await intake.shift(7200)
    await intake.tend()
    await intake.shift(-7200)
    await intake.reserve("u")
    (row,) = await intake.claim(lease_s=1)
    await intake.tend()
    await intake.shift(60)
    await intake.tend()
    (again,) = await intake.claim()
    assert (again["msg_id"], again["read_ct"]) == (row["msg_id"], 2)


async def test_a_completion_for_an_earlier_reservation_does_not_sell_the_slot(
    intake: SqlIntake,
) -> None:
    await sell(intake, validation_webhook_url="https://example.org/v")
    (row,) = await intake.claim()
    await release(intake, row)
    assert await intake.buy("next") == row["resource_id"]
    assert await intake.complete(row) == ["stale"]
    slot = await intake.slot(row["resource_id"])
    assert (slot["status"], slot["locked_by"]) == ("RESERVED", "next")
    assert await intake.depth() == 1
