"""A payment's history through the API: what `penstock payments show` prints, as typed values."""

from uuid import uuid4

import pytest
from tests.support.payments import KEYED, Connection, SqlPayments

from penstock.kernel.errors import NotFound
from penstock.payments.public import Payments


async def test_the_history_of_a_payment_that_failed_and_was_replayed(conn: Connection) -> None:
    sql = SqlPayments(conn)
    await sql.rail("ach", **KEYED)
    payment = await sql.fail()
    await conn.fetch("select replay_payment($1, 'ann', 'fixed')", payment)
    flights = await sql.claim()
    await sql.send(flights)
    await sql.finish(flights, reference="R1")
    await conn.fetch("select extend_payment_chain()")
    story = await Payments().story(conn, payment)
    assert (story.id, story.state, story.rail, story.sequence_id) == (
        payment,
        "DISPATCHED",
        "ach",
        1,
    )
    assert [(a.attempt_no, a.state, a.link_no) for a in story.attempts] == [
        (1, "DISPATCHING", 1),
        (2, "FAILED", 2),
        (3, "DISPATCHING", 3),
        (4, "DISPATCHED", 4),
    ]
    assert story.attempts[3].rail_reference == "R1"
    assert [(a.operation, a.operator, a.reason) for a in story.audit] == [
        ("replay", "ann", "fixed")
    ]
    assert story.first_sent_at is not None
    assert len(story.payload_sha256) == 64


async def test_what_came_late_is_told_and_nobody_has_no_history(conn: Connection) -> None:
    sql = SqlPayments(conn)
    flight = await sql.hold()
    await sql.finish([flight], reference="R1")
    story = await Payments().story(conn, flight.id)
    assert [late.verdict for late in story.late_results] == ["DISPATCHED"]
    with pytest.raises(NotFound):
        await Payments().story(conn, uuid4())
