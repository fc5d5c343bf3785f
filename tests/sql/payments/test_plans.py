"""Plans decide: whatever the statistics say, a verb's work grows with its batch and nothing else.

Tables that fill and empty all day are analysed at the wrong moment as often as at the right one,
and a plan made in such a moment is kept. The statements run inside functions, so the server's own
auto_explain reports their plans, with what each node really read.
"""

import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeAlias

import asyncpg
import pytest
from tests.support.payments import KEYED, Connection, Flight, SqlPayments

BATCH = 100
PARTICIPANTS = 300
BACKLOG = 10
WORK_MAX = 10 * BATCH
EXPLAIN = """
load 'auto_explain';
set auto_explain.log_min_duration = 0;
set auto_explain.log_nested_statements = on;
set auto_explain.log_analyze = on;
set auto_explain.log_timing = off;
set auto_explain.log_format = json;
set client_min_messages = log;
"""
TABLES = """(select c.oid from pg_class c join pg_namespace n on n.oid = c.relnamespace
             where n.nspname in ('public', 'penstock_payments') and c.relkind in ('r', 'i')
               and (c.relname ~ 'payment|participant' or n.nspname = 'penstock_payments'))"""
HOT = "payment_outbox_(pending|inflight)|ix_pending|ix_attempts_dispatching"
# What the planner may have been told of the tables and indexes of payments.
STATISTICS = {
    "none": "select",
    "all empty": f"update pg_class set reltuples = 0, relpages = 1 where oid in {TABLES}",
    "all one row": f"update pg_class set reltuples = 1, relpages = 50 where oid in {TABLES}",
    "all huge": f"update pg_class set reltuples = 1e8, relpages = 10 where oid in {TABLES}",
    "hot empty": f"update pg_class set reltuples = 0, relpages = 10 where relname ~ '{HOT}'",
    "as it is": "analyze",
}
Verb: TypeAlias = Callable[[SqlPayments, list[Flight]], Awaitable[object]]
VERBS: dict[str, Verb] = {
    "enqueue": lambda sql, _: _enqueue(sql),
    "ready": lambda sql, _: sql.conn.fetch("select payment_ready()"),
    "claim": lambda sql, _: sql.claim(BATCH),
    "claim within bounds": lambda sql, _: _claim_bounded(sql),
    "send": lambda sql, flights: sql.send(flights),
    "extend": lambda sql, flights: sql.extend(flights),
    "dispatched": lambda sql, flights: sql.finish(flights),
    "dispatched, and the next": lambda sql, flights: sql.finish_and_claim(flights),
    "paid, and the next": lambda sql, flights: sql.paid_and_claim(flights),
    "retried": lambda sql, flights: sql.finish(flights, "RETRYABLE", delay_s=60),
    "failed": lambda sql, flights: sql.finish(flights, "FAILED", code="NO"),
    "held": lambda sql, flights: sql.finish(flights, "HELD"),
    "released": lambda sql, flights: sql.release(flights),
    "finished again": lambda sql, flights: sql.finish(flights),
}


async def _claim_bounded(sql: SqlPayments) -> None:
    await sql.rail("ach", max_concurrency=PARTICIPANTS, **KEYED)
    await sql.claim(BATCH)


async def _enqueue(sql: SqlPayments) -> None:
    """As many new ones as known ones."""
    await sql.fill(BATCH, PARTICIPANTS)
    await sql.fill(BATCH, PARTICIPANTS, name="more")


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from _nodes(child)


def _work(node: dict[str, Any]) -> float:
    """Rows that a node looked at."""
    removed = sum(count for name, count in node.items() if name.startswith("Rows Removed"))
    return float((node["Actual Rows"] + removed) * node["Actual Loops"])


def _said(node: dict[str, Any]) -> str:
    named = (node.get(name) for name in ("Relation Name", "Index Name", "CTE Name"))
    return " ".join([node["Node Type"], *filter(None, named), f"{_work(node):.0f}"])


class Watched:
    """A session that keeps the plans of what it runs; every verb is undone again."""

    def __init__(self, conn: Connection) -> None:
        self.conn = conn
        self._heard: list[str] = []
        conn.add_log_listener(lambda _, message: self._heard.append(str(message.message)))

    async def run(self, name: str, flights: list[Flight]) -> list[str]:
        """The nodes that looked at too many rows."""
        sql = SqlPayments(self.conn)
        transaction = self.conn.transaction()
        await transaction.start()
        if name == "finished again":
            await sql.finish(flights)
        self._heard.clear()
        await self.conn.execute(EXPLAIN)
        await VERBS[name](sql, flights)
        await self.conn.execute("set client_min_messages = error")
        await transaction.rollback()
        plans = [json.loads(text.partition("plan:")[2]) for text in self._heard if "plan:" in text]
        # The driver asks the catalogue about types that it meets for the first time.
        ours = [plan["Plan"] for plan in plans if "pg_type" not in plan["Query Text"]]
        nodes = [node for plan in ours for node in _nodes(plan)]
        assert nodes, "nothing was explained"
        return [_said(node) for node in nodes if _work(node) > WORK_MAX]


@pytest.fixture
async def rail(payments: SqlPayments) -> SqlPayments:
    await payments.rail("ach", **KEYED)
    return payments


async def _fill(payments: SqlPayments) -> list[Flight]:
    """Three hundred participants; of some a payment is in flight elsewhere, of some here."""
    await payments.fill(PARTICIPANTS * BACKLOG, PARTICIPANTS)
    await payments.claim(BATCH)
    flights = await payments.claim(BATCH, after=f"q{BATCH - 1:05}")
    assert len(flights) == BATCH
    return flights


async def test_no_statistics_make_a_verb_read_more_than_its_batch(
    rail: SqlPayments, database_url: str
) -> None:
    flights = await _fill(rail)
    too_much: dict[str, list[str]] = {}
    for known, tell in STATISTICS.items():
        await rail.conn.execute(tell)
        conn: Connection = await asyncpg.connect(database_url)  # its plans are made now
        for name in VERBS:
            too_much[f"{name}, {known}"] = await Watched(conn).run(name, flights)
        await conn.close()
    assert {name: nodes for name, nodes in too_much.items() if nodes} == {}


async def test_plans_made_while_all_was_empty_serve_when_it_is_full(
    rail: SqlPayments, database_url: str
) -> None:
    await rail.conn.execute("vacuum analyze")
    await rail.enqueue("first")
    first = await rail.claim()
    conn: Connection = await asyncpg.connect(database_url)
    watched = Watched(conn)
    for name in VERBS:
        await watched.run(name, first)
    flights = await _fill(rail)
    too_much = {name: await watched.run(name, flights) for name in VERBS}
    assert {name: nodes for name, nodes in too_much.items() if nodes} == {}
    await conn.close()
