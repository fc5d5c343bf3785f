"""The calls of a client that knows its token and the ids of its events, and nothing else."""

import json
import re
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeAlias
from uuid import UUID, uuid4

import asyncpg
import pytest
from tests.support.outbox import SqlOutbox

Session: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
CLAIM = "select id from app.outbox_claim(p_limit => 100, p_token => $1, p_tenant => null)"
DELIVERED = "select app.outbox_mark_delivered(p_token => $1, p_ids => $2)"
FAILED = "select app.outbox_mark_failed(p_token => $1, p_failures => $2::jsonb)"
PAGE = Path(__file__).parents[3] / "docs/how-to/work-the-outbox-from-sql.md"
EXTEND = "select app.outbox_extend(p_token => $1)"


class Client:
    """One claim of a client."""

    def __init__(self, conn: Session) -> None:
        self.conn = conn
        self.token = uuid4()
        self.ids: list[UUID] = []

    async def claim(self) -> "Client":
        self.ids = [row["id"] for row in await self.conn.fetch(CLAIM, self.token)]
        return self

    async def failed(self, *failures: dict[str, Any]) -> int:
        """How many of these failures counted."""
        count: int = await self.conn.fetchval(FAILED, self.token, json.dumps(failures, default=str))
        return count


async def test_of_a_hundred_two_fail_singly_and_the_others_are_delivered(conn: Session) -> None:
    outbox = SqlOutbox(conn)
    ids = await outbox.publish(100)
    await conn.execute("set role penstock_outbox_executor")
    client = await Client(conn).claim()
    assert client.ids == ids
    poison, oversized, *good = ids
    assert (
        await client.failed(
            {"id": poison, "error": "broker said no"},
            {"id": oversized, "verdict": "reject", "code": "TOO_LARGE"},
        )
        == 2
    )
    assert await conn.fetchval(DELIVERED, client.token, ids) == 98
    await conn.execute("reset role")
    assert await outbox.state(poison) == "WAITING"
    assert await outbox.state(oversized) == "DEAD"
    assert {await outbox.state(event) for event in good} == {"DELIVERED"}
    rows = await conn.fetch("select error_code, error from public.outbox order by seq")
    assert [tuple(row) for row in rows] == [("FAILED", "broker said no"), ("TOO_LARGE", None)]


async def test_a_retry_waits_as_long_as_it_says_or_as_the_queue_says(conn: Session) -> None:
    outbox = SqlOutbox(conn)
    await outbox.make_clock_settable()
    await outbox.policy(backoff_base_s=10, backoff_cap_s=15, max_attempts=9)
    told, untold = await outbox.publish(2)
    client = await Client(conn).claim()
    await client.failed({"id": told, "delay_s": 40}, {"id": untold})
    waits = "select id, next_attempt_at - penstock.clock() as wait from public.outbox"
    wait = {row["id"]: row["wait"] for row in await conn.fetch(waits)}
    assert timedelta(seconds=39) < wait[told] <= timedelta(seconds=40)
    assert timedelta(seconds=9) < wait[untold] <= timedelta(seconds=15)
    backoff = "select app.outbox_backoff_s($1)"
    await outbox.policy(backoff_base_s=1, backoff_cap_s=300)
    for attempt, ceiling in ((0, 2), (1, 2), (3, 8), (2**31 - 1, 300)):
        seconds = [await conn.fetchval(backoff, attempt) for _ in range(20)]
        assert min(seconds) >= 1
        assert max(seconds) <= ceiling
        assert len(set(seconds)) > 1, "what failed together does not come back together"


async def test_a_token_ends_nothing_that_it_does_not_hold(conn: Session) -> None:
    outbox = SqlOutbox(conn)
    await outbox.make_clock_settable()
    (event,) = await outbox.publish(1)
    first = await Client(conn).claim()
    await outbox.advance(timedelta(minutes=2))
    await outbox.tend()
    second = await Client(conn).claim()
    assert (first.ids, second.ids) == ([event], [event])
    assert await first.failed({"id": event, "verdict": "reject"}) == 0
    assert await conn.fetchval(EXTEND, first.token) == 0
    assert await outbox.state(event) == "LEASED"
    assert await second.failed({"id": event}, {"id": event}, {"id": uuid4()}) == 1
    assert await second.failed({"id": event}) == 0
    assert await second.failed() == 0


async def test_an_extended_token_keeps_all_it_holds(conn: Session) -> None:
    outbox = SqlOutbox(conn)
    await outbox.make_clock_settable()
    await outbox.publish(3)
    client = await Client(conn).claim()
    await conn.fetchval(DELIVERED, client.token, client.ids[:1])
    for _ in range(2):
        await outbox.advance(timedelta(seconds=20))
        await conn.execute("set role penstock_outbox_executor")
        assert await conn.fetchval(EXTEND, client.token) == 2
        await conn.execute("reset role")
        assert (await outbox.tend())[0] == 0
    await outbox.advance(timedelta(seconds=31))
    assert (await outbox.tend())[0] == 2


async def test_a_failure_is_told_in_words_that_exist(conn: Session) -> None:
    outbox = SqlOutbox(conn)
    (event,) = await outbox.publish(1)
    client = await Client(conn).claim()
    for verdict in ("done", "check", "maybe"):
        with pytest.raises(asyncpg.PostgresError) as refused:
            await client.failed({"id": event, "verdict": verdict})
        assert refused.value.sqlstate == "PN005"
    assert await outbox.state(event) == "LEASED"


async def test_the_page_for_other_languages_says_what_works(conn: Session) -> None:
    outbox = SqlOutbox(conn)
    for number, topic in ((1, "slow"), (2, "large"), (3, "orders.paid"), (4, "orders.paid")):
        event = f"00000000-0000-4000-8000-00000000000{number}"
        await conn.execute("select app.outbox_publish($1::text::uuid, $2, '{}')", event, topic)
    await outbox.publish(1, topic="later")
    blocks = re.findall(r"```sql\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    answers = [await conn.fetch(block) for block in blocks]
    assert [len(rows) for rows in answers] == [5, 1, 1, 1]
    assert [rows[0][0] for rows in answers[1:]] == [2, 2, 1]
    states = await conn.fetch("select state from app.outbox_all order by seq")
    assert [row[0] for row in states] == ["WAITING", "DEAD", "DELIVERED", "DELIVERED", "LEASED"]
