"""Events of joint leases end by runs of their numbers: just those, and only by who has them."""

import asyncio
import re
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from datetime import timedelta
from uuid import UUID, uuid4

import pytest
from tests.support.history import assert_history
from tests.support.outbox import Connection, Leased, SqlOutbox

from penstock.kernel.queue import Item, Outcome
from penstock.kernel.verdict import DONE
from penstock.outbox.queue import OutboxQueue

LEFT = "select coalesce(array_agg(seq order by seq), '{}') from public.outbox"
LEASES = "select count(*) from public.outbox_joint_leases"


@pytest.fixture
async def outbox(conn: Connection) -> SqlOutbox:
    outbox = SqlOutbox(conn)
    await outbox.make_clock_settable()
    await outbox.policy(lease_s=30, max_attempts=10)
    return outbox


async def _finish(outbox: SqlOutbox, *runs: tuple[UUID, Leased, Leased]) -> int:
    count: int = await outbox.conn.fetchval(
        "select app.outbox_finish_joint($1, $2, $3)",
        [token for token, _, _ in runs],
        [first.seq for _, first, _ in runs],
        [last.seq for _, _, last in runs],
    )
    return count


async def _left(outbox: SqlOutbox) -> Sequence[int]:
    left: Sequence[int] = await outbox.conn.fetchval(LEFT)
    return left


async def test_runs_of_several_leases_end_together(outbox: SqlOutbox) -> None:
    ids = await outbox.publish(6)
    a = await outbox.claim(3, joint=True)
    b = await outbox.claim(3, joint=True)
    assert await _finish(outbox, (b[0].token, b[0], b[2]), (a[0].token, a[0], a[1])) == 5
    assert await _left(outbox) == [a[2].seq]
    assert await _finish(outbox, (a[2].token, a[2], a[2])) == 1
    assert await outbox.conn.fetchval(LEASES) == 0
    await assert_history(outbox.conn, ids)


async def test_a_run_takes_nothing_that_its_token_does_not_have(outbox: SqlOutbox) -> None:
    """However far it reaches: not of others, not what waits, and nothing by an unknown token."""
    await outbox.publish(5)
    a = await outbox.claim(2, joint=True)
    b = await outbox.claim(2, joint=True)
    everything = await _left(outbox)
    far = replace(b[1], seq=everything[-1] + 1000)
    assert await _finish(outbox, (uuid4(), a[0], far)) == 0
    assert await _left(outbox) == everything
    assert await _finish(outbox, (a[0].token, a[0], far)) == 2
    assert await _left(outbox) == everything[2:]
    assert await outbox.finish(b) == []


async def test_what_was_given_up_in_between_is_left_out(outbox: SqlOutbox) -> None:
    await outbox.publish(3)
    items = await outbox.claim(joint=True)
    await outbox.fail(items[1:2], delay_s=60)
    assert await _finish(outbox, (items[0].token, items[0], items[2])) == 2
    assert await _left(outbox) == [items[1].seq]


async def test_who_has_lost_the_lease_ends_nothing(outbox: SqlOutbox) -> None:
    ids = await outbox.publish(2)
    lost = await outbox.claim(joint=True)
    await outbox.advance(timedelta(seconds=31))
    await outbox.tend(sweep=True)
    assert await _finish(outbox, (lost[0].token, lost[0], lost[1])) == 0
    again = await outbox.claim(joint=True)
    assert await _finish(outbox, (lost[0].token, lost[0], lost[1])) == 0
    assert await _finish(outbox, (again[0].token, again[0], again[1])) == 2
    await assert_history(outbox.conn, ids)


async def test_what_came_back_while_the_lease_was_still_written_down_is_not_ended(
    outbox: SqlOutbox,
) -> None:
    """Its position tells: the new owner's is higher than any that the lease has taken."""
    await outbox.publish(2)
    items = await outbox.claim(joint=True)
    await outbox.conn.execute(
        "update public.outbox set pos = nextval('penstock.outbox_next') where seq = $1",
        items[1].seq,
    )
    assert await _finish(outbox, (items[0].token, items[0], items[1])) == 1
    assert await _left(outbox) == [items[1].seq]


async def test_nor_is_it_given_to_the_old_owner_as_a_lease_of_its_own(outbox: SqlOutbox) -> None:
    (event,) = await outbox.publish(1)
    items = await outbox.claim(joint=True)
    await outbox.conn.execute("update public.outbox set pos = nextval('penstock.outbox_next')")
    assert await outbox.release(items) == 0
    assert await outbox.state(event) == "READY"


async def test_the_next_of_a_key_goes_on(outbox: SqlOutbox) -> None:
    for _ in range(2):
        await outbox.conn.execute(
            "select app.outbox_publish(null, 't', '{}', p_ordering_key => 'k')"
        )
    (head,) = await outbox.claim(joint=True)
    assert await _finish(outbox, (head.token, head, head)) == 1
    assert len(await outbox.claim(joint=True)) == 1


async def _statements(conn: Connection, work: Awaitable[Sequence[Item]]) -> tuple[int, list[str]]:
    """How many items were refused, and which functions were called."""
    queries: list[str] = []
    with conn.query_logger(lambda query: queries.append(query.query)):
        refused = await work
    await asyncio.sleep(0)  # the logger is called with the loop's next turn
    return len(refused), [re.findall(r"app\.(\w+)", query)[0] for query in queries]


async def test_a_claim_that_ends_whole_is_told_by_its_runs_alone(outbox: SqlOutbox) -> None:
    await outbox.publish(3)
    queue = OutboxQueue()
    items = await queue.claim(outbox.conn, limit=10, owner=uuid4())
    told = await _statements(
        outbox.conn, queue.finish(outbox.conn, [Outcome(item, DONE) for item in items])
    )
    assert told == (0, ["outbox_finish_joint"])
    assert await _left(outbox) == []


async def test_of_a_claim_that_was_lost_in_part_the_rest_ends_and_the_lost_are_named(
    outbox: SqlOutbox,
) -> None:
    await outbox.publish(3)
    queue = OutboxQueue()
    items = await queue.claim(outbox.conn, limit=10, owner=uuid4())
    await queue.release(outbox.conn, items[1:2])
    told = await _statements(
        outbox.conn, queue.finish(outbox.conn, [Outcome(item, DONE) for item in items])
    )
    assert told == (1, ["outbox_finish_joint", "outbox_finish"])
    assert await _left(outbox) == [items[1].key]
    assert await outbox.conn.fetchval("select count(*) from penstock.late_results") == 1


async def test_what_has_a_lease_of_its_own_is_not_asked_for_by_runs(outbox: SqlOutbox) -> None:
    await outbox.publish(2)
    queue = OutboxQueue(joint=False)
    items = await queue.claim(outbox.conn, limit=10, owner=uuid4())
    told = await _statements(
        outbox.conn, queue.finish(outbox.conn, [Outcome(item, DONE) for item in items])
    )
    assert told == (0, ["outbox_finish"])
