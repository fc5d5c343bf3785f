"""Sinks behind a real worker: order by key, poison among neighbours, what is not installed."""

import json
import sys
from pathlib import Path

import pytest
from tests.support import destinations
from tests.support.brokers import KafkaMock, add_stream, nats_client, nats_server, stored
from tests.support.deliveries import destination
from tests.support.outbox import Connection

from penstock.kernel.errors import MissingExtra
from penstock.kernel.settings import Settings
from penstock.outbox.sinks.factory import MODULES, make_sink

KEYS = ["ada", "grace", "alan"]


async def test_each_key_is_in_its_order_in_kafka(database_url: str, conn: Connection) -> None:
    kafka = KafkaMock()
    await destinations.put(conn, "log", "kafka", config={"brokers": kafka.brokers})
    for number in range(60):
        await destinations.publish(conn, key=KEYS[number % 3], n=number)
    report = await destinations.work_off(destinations.application(database_url))
    assert report.finished == 60
    messages = kafka.read("orders.paid", 60)
    for start, key in enumerate(KEYS):
        mine = [m for m in messages if m.key() == key.encode()]
        numbers = [json.loads(m.value() or b"")["data"]["n"] for m in mine]
        assert numbers == list(range(start, 60, 3)), key


async def test_in_a_batch_of_a_hundred_one_poison_and_one_oversized_event_die_alone(
    database_url: str, conn: Connection, tmp_path: Path
) -> None:
    with nats_server(tmp_path, extra="max_payload: 64KB") as node:
        client = await nats_client(node)
        await add_stream(client, "orders", "orders.>")
        await destinations.put(conn, "stream", "nats", config={"servers": [node.url]})
        good = await destinations.publish_many(conn, 98)
        poison = await destinations.publish(conn, "orders.*.paid")
        large = await destinations.publish(conn, text="x" * 70_000)
        await destinations.work_off(destinations.application(database_url))
        messages = await stored(client, "orders")
        await client.close()
    assert {body["id"] for _, body in messages} == {str(event) for event in good}
    rows = await conn.fetch("select id, error_code from public.outbox where dead_at is not null")
    assert {row["id"]: row["error_code"] for row in rows} == {
        poison: "NATS_SUBJECT_INVALID",
        large: "NATS_TOO_LARGE",
    }


@pytest.mark.parametrize(("kind", "library"), [("kafka", "confluent_kafka"), ("nats", "nats")])
def test_a_kind_whose_library_is_missing_names_the_extra(
    kind: str, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == library]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.delitem(sys.modules, MODULES[kind], raising=False)
    with pytest.raises(MissingExtra) as caught:
        make_sink(destination(kind), Settings())
    assert f"penstock[{kind}]" in caught.value.explain()
