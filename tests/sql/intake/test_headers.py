"""What buyers send along: trace context only, and nothing that could stop the queue."""

import json

import asyncpg
import pytest
from tests.support.intake import POOL, SqlIntake

from penstock.intake import engine
from penstock.intake.messages import message_of

NOT_OBJECTS = ["5", '"text"', "[1]", "null", "true"]
RESERVE = "select * from intake_reserve($1, $2, null, $3::jsonb[])"


async def stored(intake: SqlIntake) -> list[str | None]:
    rows = await intake.conn.fetch("select headers::text from pgmq.q_intake_queue order by msg_id")
    return [row["headers"] for row in rows]


@pytest.mark.parametrize("headers", NOT_OBJECTS)
async def test_headers_that_are_no_object_are_refused(intake: SqlIntake, headers: str) -> None:
    await intake.stock(2)
    with pytest.raises(asyncpg.InvalidParameterValueError):
        await intake.conn.fetch(RESERVE, POOL, ["u", "v"], ["{}", headers])
    assert await intake.depth() == 0


async def test_only_trace_context_is_kept(intake: SqlIntake) -> None:
    await intake.stock(3)
    trace = {"traceparent": "00-1", "tracestate": "a=1", "baggage": "b=2"}
    more = {**trace, "error_code": "LEDGER_DOWN", "waiting": True}
    odd = {"traceparent": 5, "other": "x"}
    await intake.conn.fetch(
        RESERVE, POOL, ["u", "v", "w"], [json.dumps(more), None, json.dumps(odd)]
    )
    first, *others = await stored(intake)
    assert first is not None
    assert json.loads(first) == trace
    assert others == [None, None]
    slots = await intake.conn.fetch(
        "select headers::text from inventory_slots where headers is not null"
    )
    assert [json.loads(row["headers"]) for row in slots] == [trace]


async def test_a_slot_takes_objects_only(intake: SqlIntake) -> None:
    await intake.stock(1)
    await intake.reserve("u")
    with pytest.raises(asyncpg.CheckViolationError):
        await intake.conn.execute("update inventory_slots set headers = '5'")


@pytest.mark.parametrize("headers", NOT_OBJECTS)
async def test_a_stored_message_with_odd_headers_holds_up_nobody(
    intake: SqlIntake, headers: str
) -> None:
    await intake.stock(2)
    await intake.configure()
    await intake.reserve("u", "v")
    await intake.conn.execute(
        "update pgmq.q_intake_queue set headers = $1::jsonb"
        " where msg_id = (select min(msg_id) from pgmq.q_intake_queue)",
        headers,
    )
    messages = [message_of(row) for row in await engine.claim(intake.conn, 10)]
    assert [message.headers for message in messages] == [{}, {}]


@pytest.mark.parametrize("headers", NOT_OBJECTS)
async def test_a_message_with_odd_headers_dies_and_is_replayed(
    intake: SqlIntake, headers: str
) -> None:
    await intake.stock(1)
    await intake.configure()
    await intake.reserve("u")
    (row,) = await intake.claim()
    await intake.conn.execute("update pgmq.q_intake_queue set headers = $1::jsonb", headers)
    dead = await intake.reject(row)
    assert dead is not None
    await intake.conn.execute("update pgmq.q_intake_dlq set headers = $1::jsonb", headers)
    assert await intake.replay(dead) == ["replayed"]
    assert len(await intake.claim()) == 1


@pytest.mark.parametrize("headers", NOT_OBJECTS)
async def test_a_row_with_odd_headers_can_be_read(intake: SqlIntake, headers: str) -> None:
    await intake.stock(1)
    await intake.configure()
    await intake.reserve("u")
    (row,) = await engine.claim(intake.conn, 1)
    assert message_of({**dict(row), "headers": headers}).headers == {}
