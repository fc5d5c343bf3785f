"""Claims under one lease: who gets what, beside whom, and what is claimed row by row."""

import asyncio
from uuid import UUID

import asyncpg
import pytest
from tests.support.interleave import Stage
from tests.support.outbox import Connection, SqlOutbox

JOINT = "select id, seq, processing_token from app.outbox_claim_joint(100, gen_random_uuid())"
ROWS = "select id from app.outbox_claim(100, gen_random_uuid())"
LEASES = "select count(*) from public.outbox_joint_leases"
SWEPT = "select setval('penstock.outbox_swept', penstock.milliseconds(clock_timestamp()))"


@pytest.fixture
async def outbox(conn: Connection) -> SqlOutbox:
    outbox = SqlOutbox(conn)
    await outbox.make_clock_settable()
    await outbox.policy(lease_s=30, max_attempts=10)
    return outbox


async def _leases(outbox: SqlOutbox) -> int:
    count: int = await outbox.conn.fetchval(LEASES)
    return count


async def test_a_joint_claim_writes_no_row_of_an_event(outbox: SqlOutbox) -> None:
    ids = await outbox.publish(3)
    versions = await outbox.conn.fetch("select ctid, xmin, xmax from public.outbox")
    items = await outbox.claim(joint=True)
    assert [item.id for item in items] == ids
    assert [(item.attempts, item.epoch) for item in items] == [(1, 1)] * 3
    assert await outbox.conn.fetch("select ctid, xmin, xmax from public.outbox") == versions
    assert await _leases(outbox) == 1


@pytest.mark.parametrize("joint", [True, False])
async def test_nobody_else_gets_them_however_often_house_is_kept(
    outbox: SqlOutbox, joint: bool
) -> None:
    await outbox.publish(3)
    await outbox.claim(joint=True)
    for _ in range(4):
        assert await outbox.tend(sweep=True) == (0, 0, 0)
        # Keepers of the watermark that race may set it back.
        await outbox.conn.execute("select setval('penstock.outbox_wm', 0)")
        assert await outbox.claim(joint=joint) == []
        assert not await outbox.conn.fetchval("select app.outbox_ready()")


@pytest.mark.parametrize("swept", [False, True])
async def test_what_commits_late_below_them_is_found(
    database_url: str, outbox: SqlOutbox, swept: bool
) -> None:
    async with Stage(database_url) as stage:
        late = await stage.session("late")
        await late.begin()
        await late.run("select app.outbox_publish(null, 'late', '{}')")
        await outbox.publish(3)
        await outbox.conn.execute(SWEPT)
        first = await outbox.claim(joint=True)
        assert len(first) == 3
        if swept:
            await outbox.tend()  # the watermark passes it
        await late.commit()
        if swept:
            assert await outbox.claim(joint=True) == []
            assert await outbox.tend(sweep=True) == (0, 0, 1)
        assert [item.topic for item in await outbox.claim(joint=True)] == ["late"]
        assert await outbox.finish(first) == []


async def test_no_sweep_goes_on_beside_a_joint_claim(database_url: str, outbox: SqlOutbox) -> None:
    """It would give a new position to what is being taken under the old one."""
    (event,) = await outbox.publish(1)
    await outbox.conn.execute("select setval('penstock.outbox_wm', 99)")  # as if it were late
    async with Stage(database_url) as stage:
        worker = await stage.session("worker")
        await worker.run(SWEPT)  # or it would sweep itself, and keep others from it by that
        await worker.begin()
        await worker.run(JOINT)
        assert await outbox.tend(sweep=True) == (0, 0, 0)
        await worker.commit()
    assert await outbox.tend(sweep=True) == (0, 0, 1)
    assert await outbox.state(event) == "READY"


async def test_an_old_snapshot_gets_nothing_that_was_taken_since(
    database_url: str, outbox: SqlOutbox
) -> None:
    await outbox.publish(2)
    async with Stage(database_url) as stage:
        user = await stage.session("user")
        await user.begin("repeatable read")
        await user.run("select 1 from public.outbox")
        taken = await outbox.claim(1, joint=True)
        assert len(await user.run(ROWS)) == 1
        await user.commit()
    assert await outbox.finish(taken) == []


async def test_at_repeatable_read_late_commits_are_found_as_well(
    database_url: str, outbox: SqlOutbox
) -> None:
    """Below what was taken jointly, and with nobody left who sweeps."""
    async with Stage(database_url) as stage:
        late, user = await stage.sessions("late", "user")
        await late.begin()
        await late.run("select app.outbox_publish(null, 'late', '{}')")
        await outbox.publish(3)
        taken = await outbox.claim(joint=True)
        assert len(taken) == 3
        await late.commit()
        await outbox.conn.execute("select setval('penstock.outbox_wm', 4)")
        await user.begin("repeatable read")
        assert len(await user.run(ROWS)) == 1
        await user.commit()
    assert await outbox.finish(taken) == []


async def test_clients_at_repeatable_read_pass_nothing(
    database_url: str, outbox: SqlOutbox
) -> None:
    """They do not sweep, so what they have not seen must stay where they look."""
    async with Stage(database_url) as stage:
        late, user = await stage.sessions("late", "user")
        await user.run("set default_transaction_isolation = 'repeatable read'")
        await late.begin()
        (published,) = await late.run("select app.outbox_publish(null, 'late', '{}') as id")
        for _ in range(2):
            await user.run("select setval('penstock.outbox_swept', 0)")
            assert await user.run(ROWS) == []
        await late.commit()
        assert await user.run(ROWS) == [published]
    assert await outbox.state(published["id"]) == "LEASED"


async def test_after_a_restore_elsewhere_claims_at_repeatable_read_go_on(
    database_url: str, outbox: SqlOutbox
) -> None:
    """The number of a transaction means nothing there; it may be far ahead."""
    await outbox.publish(2)
    await outbox.finish(await outbox.claim(joint=True))
    await outbox.conn.execute("select setval('penstock.outbox_joint_xid', 1000000000)")
    async with Stage(database_url) as stage:
        user = await stage.session("user")
        await user.run("set default_transaction_isolation = 'serializable'")
        await outbox.conn.execute("select setval('penstock.outbox_taken', 1000)")
        (event,) = await outbox.publish(1)
        assert [row["id"] for row in await user.run(ROWS)] == [event]


async def test_a_joint_claim_that_is_undone_leaves_nothing_behind(
    database_url: str, outbox: SqlOutbox
) -> None:
    await outbox.publish(3)
    async with Stage(database_url) as stage:
        worker = await stage.session("worker")
        await worker.run(SWEPT)  # or it would sweep itself, and keep others from it by that
        await worker.begin()
        assert len(await worker.run(JOINT)) == 3
        assert await outbox.tend(sweep=True) == (0, 0, 0)
        await worker.rollback()
    assert len(await outbox.claim(joint=True)) == 3


@pytest.mark.parametrize("verb", [ROWS, "select app.outbox_cancel($1, 'no longer wanted')"])
async def test_whoever_takes_rows_waits_for_a_joint_claim_to_end(
    database_url: str, outbox: SqlOutbox, verb: str
) -> None:
    ids = await outbox.publish(3)
    args = [ids[0]] if "$1" in verb else []
    async with Stage(database_url) as stage:
        ann, bob = await stage.sessions("ann", "bob")
        await ann.begin()
        assert len(await ann.run(JOINT)) == 3
        step = bob.start(verb, *args)
        await stage.until_blocked(bob, step)
        await ann.commit()
        assert [row[0] for row in await step.done()] in ([], [False])


async def test_beside_an_open_claim_of_rows_a_joint_claim_takes_rows(
    database_url: str, outbox: SqlOutbox
) -> None:
    await outbox.publish(3)
    async with Stage(database_url) as stage:
        user = await stage.session("user")
        await user.begin()
        await user.run("select id from app.outbox_claim(1, gen_random_uuid())")
        assert len(await outbox.claim(joint=True)) == 2
        assert await _leases(outbox) == 0
        await user.rollback()
        assert len(await outbox.claim(joint=True)) == 1


async def test_while_one_is_claiming_another_waits_and_then_takes_the_rest(
    database_url: str, outbox: SqlOutbox
) -> None:
    # As long as the test takes: after a fifth of a second it would take rows instead.
    await outbox.conn.execute("alter function app.outbox_enter_joint() set lock_timeout = '10s'")
    ids = await outbox.publish(3)
    async with Stage(database_url) as stage:
        ann, bob = await stage.sessions("ann", "bob")
        await ann.begin()
        await ann.run("select id from app.outbox_claim_joint(2, gen_random_uuid())")
        step = bob.start(JOINT)
        await stage.until_blocked(bob, step)
        await ann.commit()
        assert [row["id"] for row in await step.done()] == ids[2:]
        assert await _leases(outbox) == 2


async def test_an_old_snapshot_claims_rows_and_cancels_nothing_it_cannot_judge(
    database_url: str, outbox: SqlOutbox
) -> None:
    ids = await outbox.publish(2)
    async with Stage(database_url) as stage:
        user = await stage.session("user")
        await user.begin("repeatable read")
        await user.run("select 1 from public.outbox")
        await outbox.claim(1, joint=True)
        cancel = "select app.outbox_cancel($1, 'no longer wanted')"
        assert not await user.value(cancel, ids[0])
        assert await user.value(cancel, ids[1])
        await user.commit()
    assert [await outbox.state(event) for event in ids] == ["LEASED", "CANCELLED"]


async def test_many_claim_jointly_and_share_nothing(database_url: str, conn: Connection) -> None:
    await conn.execute(
        "insert into public.outbox (topic, payload) select 't', '{}' from generate_series(1, 2000)"
    )
    async with asyncpg.create_pool(database_url, min_size=6, max_size=6) as pool:

        async def claim(number: int) -> list[UUID]:
            async with pool.acquire() as one:
                rows = await one.fetch(JOINT if number % 3 else ROWS)
                return [row["id"] for row in rows]

        answers = await asyncio.gather(*(claim(number) for number in range(30)))
    ids = [event for answer in answers for event in answer]
    assert len(ids) == len(set(ids)) == 2000


_OTHER_KINDS = {
    "an alert, which may still grow": "insert into public.outbox (topic, payload)"
    " values ('penstock.alert', '{}')",
    "a row of a relay table": "insert into payments.outbox_transfers (payload) values ('{}')",
    "shares of tenants": "update penstock.queue_config set fairness = 'round_robin'",
    "a tenant that is paused": "select penstock.pause_target("
    "'tenant/00000000-0000-0000-0000-000000000001', 'r'), app.outbox_publish(null, 't', '{}',"
    " p_tenant => '00000000-0000-0000-0000-000000000001')",
}


@pytest.mark.parametrize("kind", _OTHER_KINDS)
async def test_with_anything_else_among_them_events_are_claimed_row_by_row(
    outbox: SqlOutbox, kind: str
) -> None:
    ids = await outbox.publish(1)
    await outbox.conn.execute(_OTHER_KINDS[kind])
    items = await outbox.claim(joint=True)
    assert ids[0] in [item.id for item in items]
    assert await _leases(outbox) == 0
    assert await outbox.finish(items) == []


async def test_a_topic_that_is_not_asked_for_stays_ready(outbox: SqlOutbox) -> None:
    await outbox.publish(1)
    (other,) = await outbox.publish(1, topic="other")
    assert len(await outbox.claim(joint=True, topics=["t"])) == 1
    assert await outbox.state(other) == "READY"
    assert await _leases(outbox) == 0


async def test_an_answer_is_small_enough_to_be_sent_at_once(outbox: SqlOutbox) -> None:
    """Until it is sent, others wait."""
    large = "select app.outbox_publish(null, 't', jsonb_build_object('text', repeat(md5($1), $2)))"
    for number in range(4):
        await outbox.conn.execute(large, str(number), 2_000)
    assert [len(await outbox.claim(joint=True)) for _ in range(3)] == [2, 2, 0]
    assert await _leases(outbox) == 2
    await outbox.conn.execute(large, "too large", 6_000)
    assert len(await outbox.claim(joint=True)) == 1
    assert await _leases(outbox) == 2


async def test_what_is_short_where_it_is_kept_and_long_where_it_is_sent_counts_as_long(
    outbox: SqlOutbox,
) -> None:
    for _ in range(4):
        await outbox.conn.execute(
            "select app.outbox_publish(null, 't', jsonb_build_object('number', 1e60000::numeric))"
        )
    assert [len(await outbox.claim(joint=True)) for _ in range(3)] == [2, 2, 0]
