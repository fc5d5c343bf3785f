"""Hot statements keep their plans: no sequential scan, no sort of the whole, whatever is cached."""

import json
from collections.abc import Iterator
from typing import Any

import asyncpg
import pytest
from tests.support.intake import POOL, Connection, SqlIntake


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


async def plans_of(conn: Connection, query: str, *args: object) -> list[dict[str, Any]]:
    """The plans of every statement that a call runs, nested ones too."""
    texts: list[str] = []
    conn.add_log_listener(lambda _, message: texts.append(str(message.message)))
    await conn.execute(
        """
        load 'auto_explain';
        set auto_explain.log_min_duration = 0; set auto_explain.log_nested_statements = on;
        set auto_explain.log_analyze = on; set auto_explain.log_timing = off;
        set auto_explain.log_format = json; set client_min_messages = log
        """
    )
    await conn.fetch(query, *args)
    await conn.execute("set auto_explain.log_min_duration = -1")
    found = [json.loads(text[text.index("{") :])["Plan"] for text in texts if "plan:" in text]
    return [node for plan in found for node in nodes(plan)]


@pytest.fixture
async def stocked(intake: SqlIntake) -> SqlIntake:
    await intake.stock(20000)
    await intake.configure()
    await intake.reserve(*(f"u{n}" for n in range(2000)))
    await intake.conn.execute("analyze inventory_slots")
    await intake.conn.execute("analyze pgmq.q_intake_queue")
    return intake


def scans(found: list[dict[str, Any]], relation: str) -> set[str]:
    return {node["Node Type"] for node in found if node.get("Relation Name") == relation}


async def test_a_claim_reads_by_index_and_writes_by_address(stocked: SqlIntake) -> None:
    users = [f"v{n}" for n in range(500)]
    found = await plans_of(
        stocked.conn, "select * from intake_reserve($1, $2, $3)", POOL, users, users
    )
    assert scans(found, "inventory_slots") <= {
        "Index Scan",
        "Index Only Scan",
        "Tid Scan",
        "ModifyTable",
    }
    probes = [node for node in found if node.get("Index Name") == "inventory_slots_request"]
    assert [node["Actual Loops"] for node in probes] == [500]
    picks = [
        node
        for node in found
        if node.get("Index Name") == "inventory_slots_free" and node["Actual Loops"]
    ]
    # The claim's own slots, and the one to which the watermark moves: 2,000 are sold before it.
    assert sorted(pick["Actual Rows"] for pick in picks) == [1, 500]


async def test_a_sold_out_answer_reads_nothing_below_the_watermark(intake: SqlIntake) -> None:
    await intake.stock(3000)
    for part in range(3):
        await intake.reserve(*(f"{part}-{n}" for n in range(1000)))
    await intake.tend()
    found = await plans_of(
        intake.conn, "select * from intake_reserve($1, $2, null)", POOL, ["late"]
    )
    pick = [node for node in found if node.get("Index Name") == "inventory_slots_free"]
    assert sum(node["Actual Rows"] for node in pick) == 0
    assert sum(node.get("Rows Removed by Filter", 0) for node in pick) == 0


@pytest.mark.parametrize(
    "call",
    ["select * from intake_claim(500)", "select intake_ready()", "select * from intake_tend()"],
)
async def test_the_bridge_reads_its_queue_by_index(stocked: SqlIntake, call: str) -> None:
    found = await plans_of(stocked.conn, call)
    for relation in ("q_intake_queue", "inventory_slots"):
        assert "Seq Scan" not in scans(found, relation)


async def test_completing_reads_by_key(stocked: SqlIntake) -> None:
    rows = await stocked.claim(500)
    arguments = [
        [row[name] for row in rows] for name in ("msg_id", "resource_id", "reservation_id")
    ]
    found = await plans_of(stocked.conn, "select * from intake_complete($1, $2, $3)", *arguments)
    assert "Seq Scan" not in scans(found, "q_intake_queue") | scans(found, "inventory_slots")


async def test_a_held_snapshot_does_not_make_claims_walk_over_the_past(
    stocked: SqlIntake, database_url: str
) -> None:
    holder = await asyncpg.connect(database_url)
    await holder.execute("begin isolation level repeatable read; select 1 from inventory_slots")
    for part in range(5):
        await stocked.reserve(*(f"{part}-{n}" for n in range(1000)))
        rows = await stocked.claim(1000)
        await stocked.complete(*rows)
    await stocked.tend()
    found = await plans_of(
        stocked.conn, "select * from intake_reserve($1, $2, null)", POOL, ["one", "two"]
    )
    found += await plans_of(stocked.conn, "select * from intake_claim(10)")
    touched = sum(
        node.get("Shared Hit Blocks", 0)
        for node in found
        if node.get("Index Name") in {"inventory_slots_free", "q_intake_queue_pkey"}
    )
    assert touched < 200
    await holder.close()
