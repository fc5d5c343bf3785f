"""Kafka as a sink, against librdkafka's mock cluster: what arrives, and what each failure means."""

import asyncio
import json
import threading
from uuid import UUID

import pytest
from confluent_kafka import KafkaError
from tests.support.brokers import KafkaMock, free_port, headers_of
from tests.support.deliveries import delivery, destination

from penstock.kernel.errors import BadSetting
from penstock.kernel.settings import Settings
from penstock.kernel.verdict import DONE, Reject, Retry
from penstock.outbox.sinks.kafka import KafkaSink, make

TENANT = UUID("0197a000-0000-7000-8000-000000000001")


@pytest.fixture(scope="module")
def kafka() -> KafkaMock:
    return KafkaMock()


def sink_to(kafka: KafkaMock, **config: object) -> KafkaSink:
    return make(destination("kafka", {"brokers": kafka.brokers, **config}), Settings())


async def test_each_event_arrives_with_its_key_and_its_id_in_the_headers(kafka: KafkaMock) -> None:
    sink = sink_to(kafka)
    sent = [
        delivery({"n": 1}, topic="keyed", key="customer-7", headers={"traceparent": "00-ab"}),
        delivery({"n": 2}, topic="keyed"),
    ]
    await sink.open()
    try:
        assert await sink.deliver(sent) == [DONE, DONE]
    finally:
        await sink.close()
    by_id = {headers_of(m)["event_id"]: m for m in kafka.read("keyed", 2)}
    first, second = (by_id[str(one.envelope.id)] for one in sent)
    assert first.key() == b"customer-7"
    assert second.key() == str(sent[1].envelope.id).encode()
    assert headers_of(first) == {
        "traceparent": "00-ab",
        "event_id": str(sent[0].envelope.id),
        "event_type": "keyed",
        "penstock-attempt": "2",
        "penstock-fence": "7",
        "content-type": "application/json",
    }
    body = json.loads(first.value() or b"")
    assert body["id"] == str(sent[0].envelope.id)
    assert body["data"] == {"n": 1}


async def test_calls_that_find_the_producer_lost_share_the_next_one(kafka: KafkaMock) -> None:
    before = _pollers()
    sink = sink_to(kafka, timeout_s=3)
    await sink.open()
    sink._fatal = True
    try:
        calls = (sink.deliver([delivery({"n": n}, topic="lost")]) for n in range(4))
        answers = await asyncio.wait_for(asyncio.gather(*calls), 10)
        assert answers == [[DONE]] * 4
        assert _pollers() == before + 1, "who reads the reports of the old one has ended"
    finally:
        await sink.close()
    assert _pollers() == before


def _pollers() -> int:
    return sum(thread.name == "penstock-kafka" for thread in threading.enumerate())


async def test_events_of_one_key_stay_in_order_over_many_batches(kafka: KafkaMock) -> None:
    sink = sink_to(kafka)
    try:
        for start in range(0, 300, 100):
            batch = [delivery({"n": n}, topic="line", key="k") for n in range(start, start + 100)]
            assert set(await sink.deliver(batch)) == {DONE}
    finally:
        await sink.close()
    messages = kafka.read("line", 300)
    assert len({message.partition() for message in messages}) == 1
    numbers = [json.loads(message.value() or b"")["data"]["n"] for message in messages]
    assert numbers == list(range(300))


async def test_one_oversized_event_is_rejected_and_its_neighbours_arrive(kafka: KafkaMock) -> None:
    sink = sink_to(kafka, message_bytes_max=2000)
    batch = [delivery({"n": n}, topic="sizes") for n in range(9)]
    batch.insert(4, delivery({"n": "x" * 5000}, topic="sizes"))
    try:
        verdicts = await sink.deliver(batch)
    finally:
        await sink.close()
    refused = verdicts[4]
    assert isinstance(refused, Reject)
    assert refused.code == "KAFKA_MSG_SIZE_TOO_LARGE"
    assert [v for v in verdicts if v is not refused] == [DONE] * 9
    assert len(kafka.read("sizes", 9)) == 9


async def test_a_topic_may_be_fixed_or_made_of_parts(kafka: KafkaMock) -> None:
    sink = sink_to(kafka, topic="shop.{tenant}.{topic}", format="cloudevents")
    try:
        await sink.deliver([delivery(topic="paid", tenant=TENANT), delivery(topic="paid")])
    finally:
        await sink.close()
    (of_tenant,) = kafka.read(f"shop.{TENANT}.paid", 1)
    assert json.loads(of_tenant.value() or b"")["specversion"] == "1.0"
    assert headers_of(of_tenant)["content-type"] == "application/cloudevents+json"
    assert len(kafka.read("shop.none.paid", 1)) == 1


async def test_a_name_that_kafka_does_not_take_is_rejected(kafka: KafkaMock) -> None:
    sink = sink_to(kafka, topic="{topic}")
    try:
        verdicts = await sink.deliver([delivery(topic=name) for name in ("", "..", "a b", "ok")])
    finally:
        await sink.close()
    assert [getattr(v, "code", "") for v in verdicts] == ["KAFKA_TOPIC_INVALID"] * 3 + [""]


async def test_brokers_that_are_away_cost_a_retry_and_not_the_loop() -> None:
    nobody = f"127.0.0.1:{free_port()}"
    sink = make(destination("kafka", {"brokers": nobody, "timeout_s": 0.5}), Settings())
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0.01)
            turns += 1

    beside = asyncio.create_task(others())
    try:
        verdicts = await asyncio.wait_for(sink.deliver([delivery(), delivery()]), 10)
        await asyncio.wait_for(sink.close(), 10)
    finally:
        beside.cancel()
    assert [v.code for v in verdicts if isinstance(v, Retry)] == ["KAFKA_MSG_TIMED_OUT"] * 2
    assert isinstance(verdicts[0], Retry)
    assert "TRANSPORT" in verdicts[0].reason or "ALL_BROKERS_DOWN" in verdicts[0].reason
    assert turns > 20


async def test_a_sink_can_be_opened_again_after_it_was_closed(kafka: KafkaMock) -> None:
    sink = sink_to(kafka)
    for _ in range(2):
        await sink.open()
        await sink.open()
        assert await sink.deliver([delivery(topic="again")]) == [DONE]
        await sink.close()
        await sink.close()
    assert len(kafka.read("again", 2)) == 2


async def test_after_a_fatal_error_the_next_deliveries_have_a_new_producer(
    kafka: KafkaMock,
) -> None:
    sink = sink_to(kafka)
    await sink.open()
    sink._on_trouble(KafkaError(KafkaError._FATAL, "lost its place", True))
    broken = sink._producer
    try:
        assert await sink.deliver([delivery(topic="fresh")]) == [DONE]
        assert sink._producer is not broken
    finally:
        await sink.close()


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError._MSG_TIMED_OUT, Retry),
        (KafkaError._QUEUE_FULL, Retry),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, Retry),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, Retry),
        (KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND, Retry),
        (KafkaError.MSG_SIZE_TOO_LARGE, Reject),
        (KafkaError.INVALID_RECORD, Reject),
    ],
)
def test_only_what_would_fail_for_ever_is_rejected(code: int, kind: type) -> None:
    sink = make(destination("kafka"), Settings())
    verdict = sink._verdict(KafkaError(code))
    assert isinstance(verdict, kind)
    assert isinstance(verdict, Retry | Reject)
    assert verdict.code.startswith("KAFKA_")


def test_brokers_come_from_the_destination_then_from_the_settings_then_from_the_default() -> None:
    def brokers(sink: KafkaSink) -> object:
        return sink._properties["bootstrap.servers"]

    assert brokers(make(destination("kafka"), Settings())) == "localhost:9092"
    told = Settings(kafka_broker="k1:9092")
    assert brokers(make(destination("kafka"), told)) == "k1:9092"
    assert brokers(make(destination("kafka", {"brokers": "k2:9092"}), told)) == "k2:9092"


def test_the_producer_is_idempotent_and_waits_for_all_replicas() -> None:
    sink = make(destination("kafka"), Settings())
    assert sink._properties["enable.idempotence"] is True
    assert sink._properties["acks"] == "all"


def test_security_comes_from_the_secret_and_from_nowhere_else() -> None:
    secret = "# login\nsecurity.protocol=SASL_SSL\nsasl.username=u\nsasl.password = p=q\n"
    sink = make(destination("kafka", secrets=[secret]), Settings())
    assert sink._properties["sasl.password"] == "p=q"
    rotated = ["sasl.password=new", "sasl.username=u\nsasl.password=old"]
    sink = make(destination("kafka", secrets=rotated), Settings())
    assert sink._properties["sasl.password"] == "new"
    with pytest.raises(BadSetting, match="sasl_password"):
        make(destination("kafka", {"sasl_password": "x"}), Settings())


@pytest.mark.parametrize(
    "secret", ["hunter2", "plugin.library.paths=evil.so", "ssl.engine.location=evil.so"]
)
def test_a_secret_that_is_no_security_property_is_refused_without_quoting_it(secret: str) -> None:
    with pytest.raises(BadSetting) as caught:
        make(destination("kafka", secrets=[secret]), Settings())
    assert secret not in caught.value.explain()


@pytest.mark.parametrize("config", [{"topic": "{who}"}, {"colour": "red"}, {"timeout_s": 0}])
def test_a_wrong_configuration_is_refused_with_the_destinations_name(
    config: dict[str, object],
) -> None:
    with pytest.raises(BadSetting, match="destination there"):
        make(destination("kafka", config), Settings())
