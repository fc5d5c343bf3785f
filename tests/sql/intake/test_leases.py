"""Extension moves both ends of a lease: the database's and the worker's."""

from uuid import uuid4

from tests.support.intake import SqlIntake

from penstock.intake.ledger import Ledger
from penstock.intake.queue import LEASE_LOOK_S, IntakeQueue
from penstock.kernel.events import Events
from penstock.kernel.queue import Item


async def claimed(intake: SqlIntake, lease_s: int) -> tuple[IntakeQueue, Item]:
    await intake.stock(1)
    await intake.configure(visibility_timeout_sec=lease_s)
    await intake.reserve("u")
    queue = IntakeQueue(Ledger(None, Events(), functions=()), Events())
    (item,) = await queue.claim(intake.conn, limit=1, owner=uuid4())
    return queue, item


async def test_an_extension_moves_the_deadline(intake: SqlIntake) -> None:
    queue, item = await claimed(intake, 1)
    ends, deadline = item.lease.expires_at, item.lease.deadline
    assert await queue.extend(intake.conn, [item]) == []
    assert item.lease.expires_at > ends
    assert item.lease.deadline > deadline
    assert LEASE_LOOK_S - 1 < item.lease.remaining_s() <= LEASE_LOOK_S


async def test_an_extension_never_shortens_a_longer_lease(intake: SqlIntake) -> None:
    queue, item = await claimed(intake, 60)
    deadline = item.lease.deadline
    assert await queue.extend(intake.conn, [item]) == []
    assert item.lease.deadline == deadline


async def test_a_lost_lease_keeps_its_deadline(intake: SqlIntake) -> None:
    queue, item = await claimed(intake, 1)
    deadline = item.lease.deadline
    await intake.conn.execute("update pgmq.q_intake_queue set read_ct = read_ct + 1")
    assert await queue.extend(intake.conn, [item]) == [item]
    assert item.lease.deadline == deadline
