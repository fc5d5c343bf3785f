"""A resend end to end: a new webhook gets the history, the old one the same events once more."""

from tests.support.destinations import Connection, publish_many, put, states, work_off
from tests.support.receiver import Receiver

from penstock import Penstock
from penstock.outbox import operations
from penstock.outbox.operations import Resend

ALL = "select penstock.clock() - interval '1 hour'"


async def _resend(conn: Connection, destination: str, *, missing: bool = False) -> int:
    wanted = Resend(destination, await conn.fetchval(ALL), missing=missing)
    begun = await operations.begin_resend(conn, wanted, reason="test", operator="ada")
    sent = 0
    while True:
        step = await operations.step_resend(conn, begun, 7)
        sent += step.sent
        if step.ended:
            return sent


async def test_receivers_see_resent_events_under_the_ids_they_know(
    ps: Penstock, conn: Connection, receiver: Receiver
) -> None:
    await put(conn, "old", config={"url": receiver.url("/old")})
    events = {str(event) for event in await publish_many(conn, 20)}
    await work_off(ps)
    assert receiver.ids("/old") == dict.fromkeys(events, 1)
    await put(conn, "new", config={"url": receiver.url("/new")})
    assert await _resend(conn, "new", missing=True) == 20
    await work_off(ps)
    assert receiver.ids("/new") == dict.fromkeys(events, 1)
    assert await _resend(conn, "new", missing=True) == 0
    assert await _resend(conn, "old") == 20
    await work_off(ps)
    assert receiver.ids("/old") == dict.fromkeys(events, 2)
    bodies = {one.id: one.document["data"] for one in receiver.at("/new")}
    for one in receiver.at("/old"):
        assert one.document["data"] == bodies[one.id]
    assert await states(conn, "new") == {"DELIVERED": 20}
    assert await conn.fetchval("select count(*) from app.outbox_prove()") == 0
