"""`penstock work` delivering to real brokers, and killed between the send and the finish."""

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from tests.support.brokers import (
    KafkaMock,
    NatsNode,
    add_stream,
    headers_of,
    leader_of,
    nats_client,
    nats_cluster,
    nats_server,
    repeated,
    stored,
)
from tests.support.outbox import Connection, SqlOutbox
from tests.support.programs import Program, running
from tests.support.waiting import until, until_true

pytestmark = [pytest.mark.fault, pytest.mark.slow]

COUNT = 40
POINTS = ["before_effect", "after_effect", "before_finish", "after_finish"]


@pytest.fixture
async def outbox(conn: Connection) -> SqlOutbox:
    """The outbox with short leases, so that what a killed worker held comes round soon."""
    sql = SqlOutbox(conn)
    await sql.policy(lease_s=1, backoff_base_s=0.1, backoff_cap_s=0.3, max_attempts=50)
    return sql


async def route(conn: Connection, kind: str, config: dict[str, Any]) -> None:
    """A destination of this kind that takes every event of orders."""
    values = json.dumps({"config": config, "breaker_pause_s": 0.2})
    await conn.execute(
        "select app.outbox_put_destination('there', $1, $2::text::jsonb, 'test')", kind, values
    )
    await conn.execute("select app.outbox_put_route('all', 'orders.*', 'there', 'test')")


async def publish(conn: Connection, count: int = COUNT) -> list[str]:
    """Events of one transaction that commits, and of one that does not."""
    async with conn.transaction():
        ids = [await _publish(conn, number) for number in range(count)]
    undone = conn.transaction()
    await undone.start()
    await _publish(conn, -1)
    await undone.rollback()
    return ids


async def _publish(conn: Connection, number: int) -> str:
    query = "select app.outbox_publish($1, 'orders.paid', $2::text::jsonb)"
    event: UUID = await conn.fetchval(query, uuid4(), json.dumps({"n": number}))
    return str(event)


@contextmanager
def worker(url: str, directory: Path, **environ: str) -> Iterator[Program]:
    """A process of the command line."""
    place = directory / uuid4().hex
    place.mkdir()
    settings = {"PENSTOCK_DATABASE_URL": url, "PENSTOCK_LISTEN": "off", **environ}
    with running(["work", "--only", "outbox"], place, settings) as program:
        yield program


async def died(program: Program, point: str) -> None:
    """Wait for its end, which must be by kill -9."""
    await until_true(lambda: program.process.poll() is not None, f"it died at {point}", within_s=30)
    assert program.process.returncode == -signal.SIGKILL, program.output


async def killed_at_every_point(url: str, directory: Path, conn: Connection) -> list[str]:
    """Publish, and let one worker after the other die with some of it in hand."""
    ids: list[str] = []
    for point in POINTS:
        ids += await publish(conn)
        with worker(url, directory, PENSTOCK_FAILPOINTS=f"{point}=kill") as program:
            await died(program, point)
    return ids + await publish(conn)


async def delivered(url: str, directory: Path, conn: Connection) -> str:
    """Let a worker do the rest; returns what it printed."""
    with worker(url, directory) as program:
        await until(lambda: _empty(conn), "everything is delivered", within_s=40)
        assert program.stop() == 0, program.output
        return program.output


async def test_nats_has_every_event_once(
    database_url: str, tmp_path: Path, outbox: SqlOutbox
) -> None:
    with nats_server(tmp_path) as node:
        client = await nats_client(node)
        await add_stream(client, "orders", "orders.>")
        await route(outbox.conn, "nats", {"servers": [node.url], "stream": "orders"})
        ids = await killed_at_every_point(database_url, tmp_path, outbox.conn)
        await delivered(database_url, tmp_path, outbox.conn)
        messages = await stored(client, "orders")
        await client.close()
    assert sorted(body["id"] for _, body in messages) == sorted(ids)
    fences = {headers["penstock-fence"] for headers, _ in messages}
    assert len(fences) > 1, "some were taken over from a dead worker"


async def test_kafka_has_every_event_and_repetitions_have_the_same_id(
    database_url: str, tmp_path: Path, outbox: SqlOutbox
) -> None:
    kafka = KafkaMock()
    await route(outbox.conn, "kafka", {"brokers": kafka.brokers, "timeout_s": 5})
    ids = await killed_at_every_point(database_url, tmp_path, outbox.conn)
    await delivered(database_url, tmp_path, outbox.conn)
    found = [headers_of(message)["event_id"] for message in kafka.read("orders.paid", len(ids))]
    assert set(found) == set(ids)
    again = repeated(found)
    assert again, "a worker that died after sending left something to repeat"
    assert max(again.values()) <= len(POINTS)


async def test_a_function_has_exactly_one_effect_for_each_event(
    database_url: str, tmp_path: Path, outbox: SqlOutbox
) -> None:
    await outbox.conn.execute("""
        create table public.effects (event_id uuid not null);
        create function public.take(event jsonb) returns void language sql as
            'insert into public.effects values ((event ->> ''id'')::uuid)';
        insert into public.outbox_functions values ('public.take')""")
    await route(outbox.conn, "sql", {"function": "public.take", "batch": 10})
    ids: list[str] = []
    for point in ("before_effect", "after_effect", "mid_finish"):
        ids += await publish(outbox.conn)
        with worker(database_url, tmp_path, PENSTOCK_FAILPOINTS=f"{point}=kill@2") as program:
            await died(program, point)
    await delivered(database_url, tmp_path, outbox.conn)
    effects = await outbox.conn.fetch("select event_id::text from public.effects")
    assert sorted(row["event_id"] for row in effects) == sorted(ids)


async def test_standard_output_has_every_event_as_a_line(
    database_url: str, tmp_path: Path, outbox: SqlOutbox
) -> None:
    await route(outbox.conn, "stdout", {})
    ids = await publish(outbox.conn)
    output = await delivered(database_url, tmp_path, outbox.conn)
    lines = [json.loads(line) for line in output.splitlines() if '"data"' in line]
    assert [line["id"] for line in lines] == ids
    assert lines[0]["data"] == {"n": 0}


async def test_with_the_leader_of_a_cluster_killed_every_event_arrives(
    database_url: str, tmp_path: Path, outbox: SqlOutbox
) -> None:
    with nats_cluster(tmp_path) as nodes:
        client = await nats_client(*nodes)
        await add_stream(client, "orders", "orders.>", replicas=3)
        await route(outbox.conn, "nats", _cluster(nodes))
        ids = await publish(outbox.conn, 10)
        with worker(database_url, tmp_path) as program:
            await until(lambda: _empty(outbox.conn), "the worker delivers", within_s=30)
            leader = await leader_of(client, "orders")
            for number in range(80):  # the worker delivers meanwhile
                ids += await publish(outbox.conn, 10)
                if number == 20:
                    next(node for node in nodes if node.name == leader).kill()
            await until(lambda: _empty(outbox.conn), "all are delivered", within_s=50)
            assert program.stop() == 0, program.output
        messages = await stored(client, "orders")
        await client.close()
    found = [headers["Nats-Msg-Id"] for headers, _ in messages]
    assert set(found) == set(ids)
    attempts = {headers["penstock-attempt"] for headers, _ in messages}
    assert len(attempts) > 1, "the kill cost some events another attempt"
    assert repeated(found) == {}, "within its duplicate window the stream keeps one of each"


def _cluster(nodes: list[NatsNode]) -> dict[str, Any]:
    return {"servers": [node.url for node in nodes], "stream": "orders", "timeout_s": 1}


async def _empty(conn: Connection) -> bool:
    return not await conn.fetchval("select count(*) from public.outbox")
