"""Two sessions on the same rows, in every order that matters."""

import asyncio
from uuid import UUID

import asyncpg
import pytest
from tests.support.intake import POOL, SWEEP_DUE, SqlIntake
from tests.support.interleave import Session, Stage

RESERVE = "select outcome, resource_id from intake_reserve($1, $2, $3)"


async def prepared(session: Session, count: int) -> SqlIntake:
    intake = SqlIntake(session.conn)
    await intake.stock(count)
    await intake.configure()
    return intake


async def test_a_claim_that_aborts_makes_no_false_sold_out(database_url: str) -> None:
    async with Stage(database_url) as stage:
        one, two = await stage.sessions("one", "two")
        await prepared(one, 1)
        await one.begin()
        await one.run(RESERVE, POOL, ["a"], ["1"])
        assert await two.value(RESERVE, POOL, ["b"], ["1"]) == "busy"
        with pytest.raises(asyncpg.PostgresError) as caught:
            await two.run("select claim_resource_and_queue($1, 'b')", POOL)
        assert caught.value.sqlstate == "PN302"
        await one.rollback()
        assert await two.value(RESERVE, POOL, ["b"], ["1"]) == "reserved"


async def test_the_single_claim_waits_a_little_for_slots_under_claim(database_url: str) -> None:
    async with Stage(database_url) as stage:
        one, two = await stage.sessions("one", "two")
        await prepared(one, 1)
        await one.begin()
        await one.run(RESERVE, POOL, ["a"], ["1"])
        step = two.start("select claim_resource_and_queue($1, 'b')", POOL)
        await one.rollback()
        assert (await step.done())[0][0] is not None


async def test_a_claim_under_way_is_not_passed_by_the_watermark(database_url: str) -> None:
    async with Stage(database_url) as stage:
        one, two = await stage.sessions("one", "two")
        intake = await prepared(two, 3)
        await one.begin()
        await one.run(RESERVE, POOL, ["a", "b"], ["1", "1"])
        await two.run(RESERVE, POOL, ["c"], ["1"])
        await intake.tend()
        await one.rollback()
        rows = await two.run(RESERVE, POOL, ["d", "e", "f"], None)
        assert [row["outcome"] for row in rows] == ["reserved", "reserved", "sold_out"]


async def test_nor_by_a_claim_that_had_a_long_way_around_it(database_url: str) -> None:
    many = [f"u{n}" for n in range(300)]
    async with Stage(database_url) as stage:
        one, two = await stage.sessions("one", "two")
        await prepared(two, 301)
        await one.begin()
        await one.run(RESERVE, POOL, many, None)
        await two.run(RESERVE, POOL, ["late"], None)
        await one.rollback()
        rows = await two.run(RESERVE, POOL, many, None)
        assert {row["outcome"] for row in rows} == {"reserved"}


async def test_a_slot_about_to_return_is_not_passed_by_the_watermark(database_url: str) -> None:
    async with Stage(database_url) as stage:
        one, two = await stage.sessions("one", "two")
        intake = await prepared(two, 1)
        (held,) = await intake.reserve("a")
        await one.begin()
        await one.run(
            "select * from intake_release($1, $2, 'no')",
            [held.resource_id],
            [held.reservation_id],
        )
        await intake.tend()
        await one.commit()
        await intake.tend()
        assert await intake.buy("b") == held.resource_id


async def test_a_double_click_in_two_processes_gets_one_slot(database_url: str) -> None:
    async with Stage(database_url) as stage:
        one, two = await stage.sessions("one", "two")
        intake = await prepared(one, 5)
        await one.begin()
        first = await one.run(RESERVE, POOL, ["u"], ["click"])
        step = two.start(RESERVE, POOL, ["a", "u", "z"], ["1", "click", "1"])
        await stage.until_blocked(two, step)
        await one.commit()
        rows = await step.done()
        assert [row["outcome"] for row in rows] == ["reserved", "again", "reserved"]
        assert rows[1]["resource_id"] == first[0]["resource_id"]
        assert await intake.counts() == (2, 3, 0)
        assert await intake.violations() == []


async def test_two_processes_cannot_pass_the_limit_per_user(database_url: str) -> None:
    async with Stage(database_url) as stage:
        one, two = await stage.sessions("one", "two")
        intake = await prepared(one, 5)
        await intake.configure(max_per_user=1)
        await one.begin()
        await one.run(RESERVE, POOL, ["u"], ["1"])
        step = two.start(RESERVE, POOL, ["u"], ["2"])
        await stage.until_blocked(two, step)
        await one.commit()
        assert (await step.done())[0]["outcome"] == "limit_reached"


async def test_a_claim_without_limit_is_not_missed_by_a_limit_set_meanwhile(
    database_url: str,
) -> None:
    async with Stage(database_url) as stage:
        one, two = await stage.sessions("one", "two")
        intake = await prepared(two, 5)
        await one.begin()
        await one.run(RESERVE, POOL, ["u"], None)
        step = two.start("select intake_pool_set($1, '{\"max_per_user\": 1}', 'test')", POOL)
        await stage.until_blocked(two, step)
        await one.commit()
        await step.done()
        assert [a.outcome for a in await intake.reserve("u")] == ["limit_reached"]


async def test_batches_with_common_users_in_opposite_order_do_not_deadlock(
    database_url: str,
) -> None:
    async with Stage(database_url) as stage:
        one, two = await stage.sessions("one", "two")
        intake = await prepared(one, 100)
        users = [f"u{n}" for n in range(20)]
        for number in range(10):
            requests = [f"r{number}"] * 20
            steps = (
                one.start(RESERVE, POOL, users, requests),
                two.start(RESERVE, POOL, users[::-1], requests),
            )
            for step in steps:
                await step.done()
            await intake.conn.execute("select intake_pool_stock($1, 20, 'more')", POOL)
        assert (await intake.counts())[1] == 200
        assert await intake.violations() == []


async def dead_letter(intake: SqlIntake) -> tuple[int, UUID]:
    await intake.configure(validation_webhook_url="https://example.org/v")
    await intake.buy("u")
    (row,) = await intake.claim()
    dead = await intake.reject(row)
    assert dead is not None
    slot: UUID = row["resource_id"]
    return dead, slot


async def test_of_two_replays_one_acts(database_url: str) -> None:
    async with Stage(database_url) as stage:
        one, two = await stage.sessions("one", "two")
        intake = await prepared(one, 1)
        dead, _ = await dead_letter(intake)
        replay = "select outcome from intake_replay($1, 'test')"
        await one.begin()
        assert await one.value(replay, [dead]) == "replayed"
        step = two.start(replay, [dead])
        await stage.until_blocked(two, step)
        await one.commit()
        assert (await step.done())[0][0] == "gone"
        assert await intake.depth() == 1
        actions = "select count(*) from audit.audit_logs where operation = 'replay'"
        assert await one.value(actions) == 1


async def test_of_replay_and_discard_one_acts(database_url: str) -> None:
    async with Stage(database_url) as stage:
        one, two = await stage.sessions("one", "two")
        intake = await prepared(one, 1)
        dead, _ = await dead_letter(intake)
        await one.begin()
        await one.run("select * from intake_discard($1, 'test')", [dead])
        step = two.start("select outcome from intake_replay($1, 'test')", [dead])
        await stage.until_blocked(two, step)
        await one.commit()
        assert (await step.done())[0][0] in {"gone", "not_replayable"}
        assert await intake.counts() == (1, 0, 0)
        assert await intake.violations() == []


async def test_discard_waits_for_a_replay_and_then_leaves_the_slot(database_url: str) -> None:
    async with Stage(database_url) as stage:
        one, two = await stage.sessions("one", "two")
        intake = await prepared(one, 1)
        dead, _ = await dead_letter(intake)
        await one.begin()
        await one.run("select * from intake_replay($1, 'test')", [dead])
        step = two.start("select outcome from intake_discard($1, 'test')", [dead])
        await stage.until_blocked(two, step)
        await one.commit()
        assert (await step.done())[0][0] == "gone"
        assert await intake.counts() == (0, 1, 0)
        assert await intake.violations() == []


async def test_the_reaper_leaves_a_slot_that_a_replay_holds(database_url: str) -> None:
    """The replay's message is not committed yet when the reaper looks."""
    async with Stage(database_url) as stage:
        one, two = await stage.sessions("one", "two")
        intake = await prepared(one, 1)
        dead, slot = await dead_letter(intake)
        await one.begin()
        await one.run("select * from intake_replay($1, 'test')", [dead])
        await two.run("select reap_orphaned_slots('0')")
        await one.commit()
        assert (await intake.slot(slot))["status"] == "RESERVED"
        assert await intake.violations() == []


async def test_the_reaper_looks_again_after_it_has_the_lock(database_url: str) -> None:
    """A slot without message looks orphaned; a message appears while the reaper waits."""
    async with Stage(database_url) as stage:
        one, two = await stage.sessions("one", "two")
        intake = await prepared(one, 1)
        (held,) = await intake.reserve("u")
        message = await one.value("select message from pgmq.q_intake_queue")
        await one.run("select intake_queue_delete('{1}')")
        await one.begin()
        await one.run("select penstock_intake.lock_pool($1)", POOL)
        step = two.start("select reap_orphaned_slots('0')")
        await stage.until_blocked(two, step)
        await one.run("select intake_queue_send($1)", message)
        await one.commit()
        assert (await step.done())[0][0] == 0
        assert (await intake.slot(held.resource_id))["status"] == "RESERVED"


async def test_a_replay_that_waits_for_the_reaper_is_refused(database_url: str) -> None:
    async with Stage(database_url) as stage:
        one, two = await stage.sessions("one", "two")
        intake = await prepared(one, 1)
        dead, slot = await dead_letter(intake)
        await one.begin()
        await one.run("update inventory_slots set status = 'AVAILABLE' where id = $1", slot)
        step = two.start("select outcome from intake_replay($1, 'test')", [dead])
        await stage.until_blocked(two, step)
        await one.commit()
        assert (await step.done())[0][0] == "not_replayable"


async def test_two_workers_share_no_message(database_url: str) -> None:
    async with Stage(database_url) as stage:
        one, two = await stage.sessions("one", "two")
        intake = await prepared(one, 10)
        await intake.reserve(*(f"u{n}" for n in range(10)))
        await one.begin()
        first = await one.run("select msg_id from intake_claim(6)")
        second = await two.run("select msg_id from intake_claim(6)")
        await one.commit()
        taken = [row[0] for row in (*first, *second)]
        assert sorted(taken) == sorted(set(taken))
        assert len(taken) == 10


async def test_a_claim_that_aborts_gives_its_messages_back(database_url: str) -> None:
    async with Stage(database_url) as stage:
        one, two = await stage.sessions("one", "two")
        intake = await prepared(two, 4)
        await intake.reserve(*"abcd")
        await one.begin()
        await one.run("select * from intake_claim(2)")
        assert len(await intake.claim(1)) == 1
        await intake.tend()
        await one.rollback()
        assert len(await intake.claim()) == 3


async def test_a_returned_message_that_is_locked_stays_listed(database_url: str) -> None:
    async with Stage(database_url) as stage:
        one, two = await stage.sessions("one", "two")
        intake = await prepared(two, 1)
        await intake.make_clock_shiftable()
        await intake.reserve("a")
        await intake.claim()
        await intake.tend()
        await intake.shift(60)
        assert (await intake.tend())["due"] == 1
        await one.begin()
        await one.run("select msg_id from pgmq.q_intake_queue for update")
        assert await intake.claim() == []
        await one.rollback()
        assert len(await intake.claim()) == 1


async def test_messages_are_never_lost_between_slow_and_aborting_sellers(
    database_url: str,
) -> None:
    """Sellers hold their transaction open or abort while claims, tends and sweeps go on."""
    setup = SqlIntake(await asyncpg.connect(database_url))
    await setup.stock(400)
    await setup.configure()
    sold: set[UUID] = set()
    confirmed: set[UUID] = set()
    selling = True

    async def seller(number: int) -> None:
        conn = await asyncpg.connect(database_url)
        for turn in range(12):
            transaction = conn.transaction()
            await transaction.start()
            users = [f"{number}-{turn}-{k}" for k in range(5)]
            rows = await conn.fetch(RESERVE, POOL, users, None)
            await asyncio.sleep(0.02 if (number + turn) % 4 == 0 else 0)
            if (number + turn) % 5 == 0:
                await transaction.rollback()
            else:
                await transaction.commit()
                sold.update(row["resource_id"] for row in rows if row["resource_id"])
        await conn.close()

    async def worker() -> None:
        intake = SqlIntake(await asyncpg.connect(database_url))
        idle = 0
        while selling or idle < 5:
            await intake.conn.execute(SWEEP_DUE)
            await intake.conn.fetch("select * from intake_tend()")
            rows = await intake.claim(20)
            assert set(await intake.complete(*rows)) <= {"consumed"} if rows else True
            confirmed.update(row["resource_id"] for row in rows)
            idle = 0 if rows else idle + 1
        await intake.conn.close()

    workers = [asyncio.create_task(worker()) for _ in range(2)]
    await asyncio.gather(*(seller(number) for number in range(4)))
    selling = False
    await asyncio.gather(*workers)
    assert confirmed == sold
    assert await setup.depth() == 0
    assert await setup.violations() == []
    await setup.conn.close()
