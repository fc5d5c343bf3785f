"""One lease for all events of a claim: how it ends, for all of them or for one."""

from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import asyncpg
import pytest
from tests.support.history import assert_history
from tests.support.interleave import Session, Stage
from tests.support.outbox import Connection, Leased, SqlOutbox

JOINT = "select id, seq, processing_token from app.outbox_claim_joint(100, gen_random_uuid())"
LEASES = "select count(*) from public.outbox_joint_leases"
FINISH_STRICT = "select app.outbox_finish_strict($1, $2)"


@pytest.fixture
async def outbox(conn: Connection) -> SqlOutbox:
    outbox = SqlOutbox(conn)
    await outbox.make_clock_settable()
    await outbox.policy(lease_s=30, max_attempts=10)
    return outbox


async def _leases(outbox: SqlOutbox) -> int:
    count: int = await outbox.conn.fetchval(LEASES)
    return count


async def _lose(outbox: SqlOutbox) -> None:
    """Let every lease end and come back."""
    await outbox.advance(timedelta(seconds=31))
    await outbox.tend(sweep=True)


async def test_it_is_seen_as_a_lease_like_any_other(outbox: SqlOutbox) -> None:
    ids = await outbox.publish(3)
    items = await outbox.claim(2, joint=True)
    assert [await outbox.state(event) for event in ids] == ["LEASED", "LEASED", "READY"]
    stats = await outbox.conn.fetchrow("select ready, leased, expired from app.outbox_stats")
    assert stats is not None
    assert tuple(stats) == (1, 2, 0)
    await outbox.advance(timedelta(seconds=31))
    assert await outbox.conn.fetchval("select expired from app.outbox_stats") == 2
    await outbox.finish(items)
    assert await _leases(outbox) == 0
    assert [await outbox.state(event) for event in ids] == ["DELIVERED", "DELIVERED", "READY"]
    await assert_history(outbox.conn, ids, quiet=False)


async def test_joint_leases_that_have_ended_are_not_read_again(outbox: SqlOutbox) -> None:
    """However long a snapshot keeps them: the floor rises to the lowest that has not ended."""
    floor = "select last_value from penstock.outbox_joint_floor"
    kept: list[Leased] = []
    for step in range(4):
        await outbox.publish(2)
        items = await outbox.claim(2, joint=True)
        kept += items[: step == 2]
        await outbox.finish(items[step == 2 :])
    await outbox.publish(1)
    await outbox.claim(joint=True)
    assert await outbox.conn.fetchval(floor) == 2
    assert await outbox.finish(kept) == []


@pytest.mark.parametrize("verdict", ["retry", "reject", "unknown"])
async def test_one_that_fails_leaves_the_lease_of_the_others(
    outbox: SqlOutbox, verdict: str
) -> None:
    ids = await outbox.publish(3)
    items = await outbox.claim(joint=True)
    assert await outbox.fail(items[:1], verdict, delay_s=60) == []
    assert await outbox.extend(items[1:]) == []
    assert await outbox.finish(items[1:]) == []
    assert await _leases(outbox) == 0
    after = {"retry": "WAITING", "reject": "DEAD", "unknown": "HELD"}[verdict]
    assert [await outbox.state(event) for event in ids] == [after, "DELIVERED", "DELIVERED"]
    await assert_history(outbox.conn, ids, quiet=False)


async def test_what_is_given_back_is_ready_and_no_attempt(outbox: SqlOutbox) -> None:
    ids = await outbox.publish(2)
    assert await outbox.release(await outbox.claim(joint=True)) == 2
    again = await outbox.claim(joint=True)
    assert [(item.id, item.attempts, item.epoch) for item in again] == [(i, 1, 2) for i in ids]


async def test_a_joint_lease_that_ends_counts_an_attempt_of_each(outbox: SqlOutbox) -> None:
    ids = await outbox.publish(3)
    first = await outbox.claim(joint=True)
    await outbox.finish(first[:1])
    await _lose(outbox)
    assert await _leases(outbox) == 0
    second = await outbox.claim(joint=True)
    assert [(item.id, item.attempts, item.epoch) for item in second] == [(i, 2, 2) for i in ids[1:]]
    # Whoever lost them finishes nothing, and takes nothing out of the new lease.
    assert await outbox.extend(first[1:]) == [item.seq for item in first[1:]]
    refused = await outbox.finish([*first[1:], second[0]])
    assert sorted(refused) == [item.seq for item in first[1:]]
    assert await outbox.tend(sweep=True) == (0, 0, 0)
    assert await outbox.finish(second[1:]) == []
    late = await outbox.conn.fetchval("select count(*) from penstock.late_results")
    assert late == 2
    await assert_history(outbox.conn, ids)


async def test_a_token_ends_nothing_that_another_holds(outbox: SqlOutbox) -> None:
    (event,) = await outbox.publish(1)
    (mine,) = await outbox.claim(joint=True)
    await outbox.publish(1)
    (other,) = await outbox.claim(joint=True)
    wrong = replace(mine, token=other.token)
    assert await outbox.extend([wrong]) == [mine.seq]
    assert await outbox.finish([wrong]) == [mine.seq]
    assert await outbox.fail([wrong]) == [mine.seq]
    assert await outbox.release([wrong]) == 0
    assert await outbox.state(event) == "LEASED"
    assert await outbox.finish([mine, other]) == []


async def test_heads_of_keys_go_with_the_others_and_their_lines_follow(outbox: SqlOutbox) -> None:
    ids = [*await outbox.publish(3, key="k"), *await outbox.publish(1)]
    for step in range(3):
        items = await outbox.claim(joint=True)
        assert [item.id for item in items] == ([ids[0], ids[3]] if step == 0 else [ids[step]])
        assert await _leases(outbox) == 1
        for verb in ("park", "skip"):  # of a key whose head is under way
            query = f"select id from app.outbox_{verb}(array['k'], 'r')"
            assert await outbox.conn.fetch(query) == []
        assert await outbox.finish(items) == []
    await assert_history(outbox.conn, ids)
    keys = "select count(*) from public.outbox_archive where ordering_key = 'k'"
    assert await outbox.conn.fetchval(keys) == 3


async def test_an_extension_is_for_those_that_are_still_wanted(outbox: SqlOutbox) -> None:
    """What a worker has given up comes back in its time, however long its neighbours take."""
    ids = await outbox.publish(4)
    items = await outbox.claim(joint=True)
    await outbox.finish(items[3:])
    await outbox.advance(timedelta(seconds=20))
    assert await outbox.extend(items[:2]) == []
    await outbox.advance(timedelta(seconds=20))
    assert await outbox.tend(sweep=True) == (1, 0, 0)
    assert await _leases(outbox) == 0
    assert await outbox.extend(items[:3]) == [items[2].seq]
    assert await outbox.finish(items[:3]) == [items[2].seq]
    (again,) = await outbox.claim(joint=True)
    assert (again.id, again.attempts) == (ids[2], 2)
    assert await outbox.finish([again]) == []
    await assert_history(outbox.conn, ids)


async def test_a_long_attempt_does_not_hold_the_floor_down(outbox: SqlOutbox) -> None:
    await outbox.publish(1)
    long = await outbox.claim(joint=True)
    assert await outbox.extend(long) == []
    assert await _leases(outbox) == 0
    for _ in range(2):
        await outbox.publish(1)
        assert await outbox.finish(await outbox.claim(joint=True)) == []
    assert await outbox.conn.fetchval("select last_value from penstock.outbox_joint_floor") == 2
    assert await outbox.finish(long) == []


@pytest.mark.parametrize("committed", [True, False])
async def test_what_a_transaction_holds_is_extended_without_waiting_for_it(
    database_url: str, outbox: SqlOutbox, committed: bool
) -> None:
    ids = await outbox.publish(2)
    async with Stage(database_url) as stage:
        user = await stage.session("user")
        items = await outbox.claim(joint=True)
        await user.begin()
        await user.run(FINISH_STRICT, [items[0].seq], [items[0].token])
        await outbox.advance(timedelta(seconds=20))
        assert await outbox.extend(items) == []
        await (user.commit() if committed else user.rollback())
    await outbox.advance(timedelta(seconds=20))
    assert await outbox.tend(sweep=True) == (0, 0, 0)
    assert await outbox.finish(items[committed:]) == []
    await _lose(outbox)
    assert await _leases(outbox) == 0
    await assert_history(outbox.conn, ids)


async def test_the_answer_to_a_finish_may_be_lost(outbox: SqlOutbox) -> None:
    await outbox.publish(2)
    items = await outbox.claim(joint=True)
    assert await outbox.finish(items) == []
    assert await outbox.finish(items) == []


async def test_clients_that_go_by_token_can_end_and_extend_them(outbox: SqlOutbox) -> None:
    ids = await outbox.publish(3)
    (token,) = {item.token for item in await outbox.claim(joint=True)}
    for owner, held in ((UUID(int=1), 0), (token, 1)):
        assert await outbox.conn.fetchval("select app.outbox_extend($1)", owner) == 3 * held
        mark = "select app.outbox_mark_delivered($1, $2)"
        assert await outbox.conn.fetchval(mark, owner, ids[:2]) == 2 * held
        fail = "select app.outbox_mark_failed($1, $2::text::jsonb)"
        told = f'[{{"id": "{ids[2]}"}}]'
        assert await outbox.conn.fetchval(fail, owner, told) == held
    states = [await outbox.state(event) for event in ids]
    assert states == ["DELIVERED", "DELIVERED", "WAITING"]


async def _claimed(worker: Session) -> list[Leased]:
    rows = await worker.run(JOINT)
    return [Leased(r["seq"], r["id"], "t", r["processing_token"], 1, 1) for r in rows]


@pytest.mark.parametrize("committed", [True, False])
async def test_a_lease_that_ends_during_the_handlers_transaction_waits_for_it(
    database_url: str, outbox: SqlOutbox, committed: bool
) -> None:
    ids = await outbox.publish(2)
    async with Stage(database_url) as stage:
        worker, user = await stage.sessions("worker", "user")
        items = await _claimed(worker)
        await user.begin()
        await user.run(FINISH_STRICT, [items[0].seq], [items[0].token])
        # The others of the claim are not held up meanwhile.
        assert await outbox.extend(items[1:]) == []
        await _lose(outbox)
        assert [await outbox.state(event) for event in ids] == ["LEASED", "READY"]
        await (user.commit() if committed else user.rollback())
    await _lose(outbox)
    expected = "DELIVERED" if committed else "READY"
    assert [await outbox.state(event) for event in ids] == [expected, "READY"]
    assert await _leases(outbox) == 0
    await assert_history(outbox.conn, ids, quiet=False)


async def test_a_transaction_that_finishes_what_is_lost_is_undone(outbox: SqlOutbox) -> None:
    await outbox.publish(1)
    (item,) = await outbox.claim(joint=True)
    await _lose(outbox)
    await outbox.claim(joint=True)
    with pytest.raises(asyncpg.PostgresError) as refused:
        await outbox.conn.fetch(FINISH_STRICT, [item.seq], [item.token])
    assert refused.value.sqlstate == "PN204"


async def test_a_transaction_that_waited_for_the_reaper_finishes_nothing(
    database_url: str, outbox: SqlOutbox
) -> None:
    """It has read the joint lease before; the row alone tells it, by a position that is higher."""
    (event,) = await outbox.publish(1)
    async with Stage(database_url) as stage:
        worker, user, reaper = await stage.sessions("worker", "user", "reaper")
        (item,) = await _claimed(worker)
        await outbox.advance(timedelta(seconds=31))
        await reaper.begin()
        await reaper.run("select app.outbox_reap(true)")
        step = user.start(FINISH_STRICT, [item.seq], [item.token])
        await stage.until_blocked(user, step)
        await reaper.commit()
        with pytest.raises(asyncpg.PostgresError) as refused:
            await step.done()
        assert refused.value.sqlstate == "PN204"
    assert await outbox.state(event) == "READY"


async def test_leases_that_handlers_transactions_have_emptied_go_together(
    outbox: SqlOutbox,
) -> None:
    """More than are split at a time: nobody waits behind them."""
    for _ in range(15):
        await outbox.publish(1)
        (item,) = await outbox.claim(joint=True)
        await outbox.conn.fetch(FINISH_STRICT, [item.seq], [item.token])
    (event,) = await outbox.publish(1)
    await outbox.claim(joint=True)
    await _lose(outbox)
    assert await _leases(outbox) == 0
    assert await outbox.state(event) == "READY"


async def test_one_that_has_ended_is_worth_a_hint(outbox: SqlOutbox) -> None:
    (event,) = await outbox.publish(1)
    hint = "select app.outbox_hint('public.outbox', $1)"
    assert await outbox.conn.fetchval(hint, event)
    await outbox.claim(joint=True)
    assert await outbox.conn.fetchval("select app.outbox_waiting()") is None
    assert not await outbox.conn.fetchval(hint, event)
    await outbox.advance(timedelta(seconds=31))
    assert await outbox.conn.fetchval("select app.outbox_waiting()") == event
    assert await outbox.conn.fetchval(hint, event)


async def test_what_is_under_way_is_not_told_as_taken_by_nobody(outbox: SqlOutbox) -> None:
    await outbox.publish(3, topic="orphans")
    await outbox.claim(2, joint=True)
    unrouted = "select topic, ready from app.outbox_unrouted()"
    assert [tuple(row) for row in await outbox.conn.fetch(unrouted)] == [("orphans", 1)]
    await outbox.claim(joint=True)
    assert await outbox.conn.fetch(unrouted) == []
