"""note_deaths, take_deaths: what they read and keep stays small, however many nobody takes."""

from typing import TypeAlias
from uuid import uuid4

import asyncpg
import pytest
from tests.sql.outbox.test_plans import Plans

Session: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
NOTE = "select penstock.note_deaths('inbox', array[$1::uuid], '{t}', '{1}', '{X}')"
FILL = """insert into penstock.deaths (queue, item_id, topic, attempt, code)
          select $1, gen_random_uuid(), 't', 1, 'X' from generate_series(1, 5000)"""
NUMBERED = """insert into penstock.deaths (number, queue, item_id, topic, attempt, code)
              overriding system value
              select n, q, gen_random_uuid(), 't', 1, 'X'
              from unnest($1::bigint[]) as n, unnest($2::text[]) as q"""


async def _fill(conn: Session, *, analysed: bool) -> None:
    for queue in ("outbox", "inbox", "payments"):
        await conn.execute(FILL, queue)
    if analysed:
        await conn.execute("analyze penstock.deaths")


async def _read(conn: Session, query: str, *args: object) -> float:
    """The most notes that one node of a statement's plans read, by way of an index."""
    nodes = await Plans(conn, "deaths").of(query, *args)
    assert {node["Node Type"] for node in nodes} <= {"Index Scan", "Index Only Scan"}
    return max(
        float((node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"])
        for node in nodes
    )


@pytest.mark.parametrize("analysed", [False, True])
async def test_a_note_looks_at_the_oldest_only(conn: Session, analysed: bool) -> None:
    await _fill(conn, analysed=analysed)
    assert await _read(conn, NOTE, uuid4()) == 1001
    assert await conn.fetchval("select count(*) from penstock.deaths") == 15_001


@pytest.mark.parametrize("analysed", [False, True])
async def test_taking_reads_what_it_takes(conn: Session, analysed: bool) -> None:
    await _fill(conn, analysed=analysed)
    assert await _read(conn, "select * from penstock.take_deaths('inbox')") == 1000


async def test_of_too_many_notes_the_oldest_go(conn: Session) -> None:
    await conn.execute(NUMBERED, [-200_003, -200_002, -100_001, -100_000], ["inbox"])
    await conn.execute(NUMBERED, [-200_001], ["outbox"])
    await conn.execute(NUMBERED, [0], ["inbox"])
    await conn.execute(NOTE, uuid4())
    left = "select number from penstock.deaths where queue = $1 and number <= 0 order by number"
    assert [row[0] for row in await conn.fetch(left, "inbox")] == [-100_000, 0]
    assert [row[0] for row in await conn.fetch(left, "outbox")] == [-200_001]


async def test_a_large_note_drops_more_than_it_adds(conn: Session) -> None:
    await conn.execute(NUMBERED, [-200_000 - number for number in range(2500)], ["inbox"])
    await conn.execute(NUMBERED, [0], ["inbox"])
    ids = [uuid4() for _ in range(1500)]
    await conn.execute(
        "select penstock.note_deaths('inbox', $1, $2, $3, $4)",
        *(ids, ["t"] * 1500, [1] * 1500, ["X"] * 1500),
    )
    assert await conn.fetchval("select count(*) from penstock.deaths") == 1501
