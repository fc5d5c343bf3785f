"""Plans decide: every hot statement goes by its index, and reads no more than it needs.

The statements run inside functions, so the server's own auto_explain reports their plans, with what
each node really read.
"""

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest
from tests.support.database import cloned, run_apart
from tests.support.outbox import SqlOutbox

from penstock.bench.kernel import held_snapshot
from penstock.postgres import Cluster

ROWS = 50_000
EXPLAIN = """
load 'auto_explain';
set auto_explain.log_min_duration = 0;
set auto_explain.log_nested_statements = on;
set auto_explain.log_analyze = on;
set auto_explain.log_buffers = on;
set auto_explain.log_format = json;
set client_min_messages = log;
"""
# Ready, waiting (an hour ahead) and leased (not over) rows, fifty thousand of each kind. The leased
# ones have tokens of their own, which makes the token's index look better than it is.
_COLUMNS = "insert into public.outbox (id, topic, payload, created_at"
_VALUES = "select gen_random_uuid(), 't', '{}', now()"
_SERIES = f"from generate_series(1, {ROWS});"
FILL = f"""
{_COLUMNS}) {_VALUES} {_SERIES}
{_COLUMNS}, pos, next_attempt_at) {_VALUES}, null, now() + interval '1 hour' {_SERIES}
{_COLUMNS}, pos, processing_token, lease_expires_at)
{_VALUES}, null, gen_random_uuid(), now() + interval '1 hour' {_SERIES}
"""


class Plans:
    """Collects the plans of what runs on a connection."""

    def __init__(
        self, conn: "asyncpg.Connection[asyncpg.Record]", relation: str = "outbox"
    ) -> None:
        self._conn = conn
        self._relation = relation
        self._seen: list[dict[str, Any]] = []
        conn.add_log_listener(self._hear)

    def _hear(self, _: object, message: Any) -> None:
        text = str(message.message)
        if "plan:" in text:
            self._seen.append(json.loads(text.partition("plan:")[2]))

    async def of(self, query: str, *args: object) -> list[dict[str, Any]]:
        """The nodes over the table that a statement and all below it ran."""
        self._seen.clear()
        await self._conn.execute(EXPLAIN)
        await self._conn.fetch(query, *args)
        await self._conn.execute("set auto_explain.log_min_duration = -1")
        return [node for plan in self._seen for node in _nodes(plan["Plan"], self._relation)]


def _nodes(plan: dict[str, Any], relation: str) -> Iterator[dict[str, Any]]:
    if plan.get("Relation Name") == relation and "Scan" in plan["Node Type"]:
        yield plan
    for child in plan.get("Plans", ()):
        yield from _nodes(child, relation)


def _read(node: dict[str, Any]) -> float:
    removed = node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
    return float((node["Actual Rows"] + removed) * node["Actual Loops"])


async def _fill(url: str) -> None:
    conn = await asyncpg.connect(url)
    await conn.execute(FILL)
    await conn.execute("analyze public.outbox")
    await SqlOutbox(conn).tend(sweep=True)  # the first one is the net, from zero
    await conn.close()


@pytest.fixture(scope="module")
def full_template(cluster: Cluster, migrated_template: str) -> Iterator[str]:
    """Filled once: a clone of it takes a tenth of the time."""
    with cloned(cluster, migrated_template) as url:
        run_apart(lambda: _fill(url))
        yield urlsplit(url).path[1:]


@pytest.fixture
async def full(
    cluster: Cluster, full_template: str
) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    with cloned(cluster, full_template) as url:
        conn: asyncpg.Connection[asyncpg.Record] = await asyncpg.connect(url)
        yield conn
        await conn.close()


async def test_claim_reads_only_what_it_takes(
    full: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    for analysed in (True, False):
        if not analysed:
            await full.execute(
                "delete from pg_statistic where starelid = 'public.outbox'::regclass"
            )
        async with full.transaction():
            # In a transaction that has an id already a claim does no housekeeping beside.
            await full.execute("select pg_current_xact_id()")
            nodes = await Plans(full).of("select * from app.outbox_claim(500, gen_random_uuid())")
        picks = [node for node in nodes if node.get("Index Name") == "idx_outbox_claimable"]
        assert [_read(node) for node in picks] == [500]
        others = {node["Node Type"] for node in nodes if node not in picks}
        assert others == {"Tid Scan", "Index Only Scan"}
        assert max(_read(node) for node in nodes) == 500


async def test_a_token_is_looked_up_by_its_own_index_however_few_are_leased(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    """Statistics taken while little is leased make every small index look alike.

    Behind the few leases of the moment lie, under a held snapshot, those of all finished events.
    """
    outbox = SqlOutbox(conn)
    await conn.execute(
        "insert into public.outbox (topic, payload) select 't', '{}' from generate_series(1, 1000)"
    )
    for leased in (0, 1, 20):
        if leased:
            await outbox.claim(leased)
        await conn.execute("analyze public.outbox")
        nodes = await Plans(conn).of("select * from app.outbox_claim(10, gen_random_uuid())")
        assert "idx_outbox_token" in {node.get("Index Name") for node in nodes}


async def test_ending_attempts_goes_by_the_key(
    full: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    outbox = SqlOutbox(full)
    plans = Plans(full)
    for query, ids in (
        ("select app.outbox_extend($1, $2)", False),
        ("select app.outbox_release($1, $2)", False),
        ("select app.outbox_finish($1, $3, $2)", True),
        (
            "select app.outbox_mark_failed($1, $3, $2, array_fill('retry'::text, array[200]),"
            " array_fill(60::float, array[200]), null, null)",
            True,
        ),
    ):
        items = await outbox.claim(200)
        keys: list[object] = [[item.seq for item in items], [item.token for item in items]]
        nodes = await plans.of(query, *keys, *([[item.id for item in items]] if ids else []))
        assert {node.get("Index Name") for node in nodes} == {"outbox_pkey"}, query
        assert sum(_read(node) for node in nodes) == 200, query


async def test_looking_for_what_has_come_due_reads_nothing_that_has_not(
    full: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    plans = Plans(full)
    for query, index in (
        ("select app.outbox_reap()", "outbox_lease_end"),
        ("select app.outbox_bring_due()", "outbox_due"),
        ("select app.outbox_ready()", "idx_outbox_claimable"),
    ):
        nodes = await plans.of(query)
        assert index in {node.get("Index Name") for node in nodes}
        assert "Seq Scan" not in {node["Node Type"] for node in nodes}
        assert sum(_read(node) for node in nodes) <= 1, query
    await full.execute("select setval('penstock.outbox_swept', 0)")
    nodes = await plans.of("select * from app.outbox_tend()")
    assert "Seq Scan" not in {node["Node Type"] for node in nodes}
    assert sum(_read(node) for node in nodes) <= 10


async def test_a_long_line_is_read_at_its_ends_only(
    full: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    """Publishing behind a key of twenty thousand, and finishing its head, read a row or two."""
    await full.execute(
        "insert into public.outbox (topic, payload, ordering_key)"
        " select 'keyed', '{}', 'hot' from generate_series(1, 20000)"
    )
    for analysed in (True, False):
        await full.execute(
            "analyze public.outbox"
            if analysed
            else "delete from pg_statistic where starelid = 'public.outbox'::regclass"
        )
        plans = Plans(full)
        publish = "select app.outbox_publish(null, 'keyed', '{}', p_ordering_key => 'hot')"
        nodes = await plans.of(publish)
        assert sum(_read(node) for node in nodes) <= 2
        (item,) = await SqlOutbox(full).claim(topics=["keyed"])
        finish = "select app.outbox_finish(array[$1::bigint], array[$2::uuid], array[$3::uuid])"
        nodes = await plans.of(finish, item.seq, item.id, item.token)
        assert "outbox_line" in {node.get("Index Name") for node in nodes}
        assert "Seq Scan" not in {node["Node Type"] for node in nodes}
        assert sum(_read(node) for node in nodes) <= 4


async def test_a_held_snapshot_does_not_make_publishing_behind_a_line_dear(
    conn: "asyncpg.Connection[asyncpg.Record]", database_url: str
) -> None:
    """What the heads that have gone leave behind is not looked through for every new event."""
    outbox = SqlOutbox(conn)
    publish = "select app.outbox_publish(null, 'keyed', '{}', p_ordering_key => 'hot')"
    for _ in range(2):
        await conn.execute(publish)
    async with held_snapshot(database_url):
        for _ in range(300):
            await conn.execute(publish)
            await outbox.finish(await outbox.claim(1))
        nodes = await Plans(conn).of(publish)
        assert {node["Index Name"] for node in nodes if node["Actual Loops"]} == {"outbox_line"}
        assert sum(node["Shared Hit Blocks"] + node["Shared Read Blocks"] for node in nodes) < 10


async def test_a_fair_claim_reads_shares_and_not_backlogs(
    full: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    await full.execute(
        "update public.outbox set tenant_id = ('00000000-0000-4000-8000-00000000000'"
        " || (seq % 5))::uuid where pos is not null"
    )
    await SqlOutbox(full).policy(fairness="round_robin")
    nodes = await Plans(full).of("select * from app.outbox_claim(100, gen_random_uuid())")
    assert "Seq Scan" not in {node["Node Type"] for node in nodes}
    assert max(_read(node) for node in nodes) <= 200


async def test_what_was_planned_on_an_empty_table_still_goes_by_the_key_when_it_is_full(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    """Nobody has counted the rows since: an idle outbox, and then a burst."""
    outbox = SqlOutbox(conn)
    await outbox.publish(12)
    await conn.execute("vacuum analyze public.outbox, public.outbox_joint_leases")
    for joint in (True, False):
        for end in (outbox.extend, outbox.release, outbox.fail, outbox.finish):
            await end(await outbox.claim(1, joint=joint))
    await conn.execute(
        "insert into public.outbox (topic, payload) select 't', '{}' from generate_series(1, 20000)"
    )
    plans = Plans(conn)
    extend, release = "select app.outbox_extend($1, $2)", "select app.outbox_release($1, $2)"
    for joint, query in (
        (True, extend),
        (True, release),
        (True, "select app.outbox_finish_joint($2, $1, $1)"),
        (False, extend),
        (False, release),
        (False, "select app.outbox_finish($1, array_fill(null::uuid, array[50]), $2)"),
    ):
        items = await outbox.claim(50, joint=joint)
        assert len(items) == 50
        nodes = await plans.of(query, [item.seq for item in items], [item.token for item in items])
        assert {node.get("Index Name") for node in nodes} <= {"outbox_pkey", None}, query
        assert max(_read(node) for node in nodes) <= 50, query
