"""NATS JetStream as a sink, against a real server: what is stored, and what failures mean."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import nkeys
import pytest
from nats.aio.client import RawCredentials
from nats.errors import AuthorizationError
from tests.support.brokers import (
    NatsNode,
    add_stream,
    free_port,
    nats_client,
    nats_server,
    stored,
)
from tests.support.deliveries import delivery, destination
from tests.support.nats_accounts import operator_mode

from penstock.kernel.errors import BadSetting
from penstock.kernel.settings import Settings
from penstock.kernel.verdict import DONE, Reject, Retry, Verdict
from penstock.outbox.sinks.nats import NatsSink, make

TENANT = UUID("0197a000-0000-7000-8000-000000000001")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsNode]:
    with nats_server(tmp_path_factory.mktemp("nats"), extra="max_payload: 64KB") as running:
        yield running


@pytest.fixture
async def subject(node: NatsNode) -> str:
    """A prefix that a stream of the test's own takes; the stream has the same name."""
    name = f"t{uuid4().hex}"
    client = await nats_client(node)
    await add_stream(client, name, f"{name}.>")
    await client.close()
    return name


def sink_to(node: NatsNode, prefix: str, **config: object) -> NatsSink:
    told = {"servers": [node.url], "subject": f"{prefix}.{{topic}}", **config}
    return make(destination("nats", told), Settings())


def codes(verdicts: list[Verdict]) -> list[str]:
    return [v.code if isinstance(v, Retry | Reject) else type(v).__name__ for v in verdicts]


async def test_each_event_is_stored_once_with_its_id_however_often_it_is_sent(
    node: NatsNode, subject: str
) -> None:
    sink = sink_to(node, subject, stream=subject)
    sent = [delivery({"n": n}, headers={"traceparent": "00-ab"}) for n in range(50)]
    await sink.open()
    try:
        assert list(await sink.deliver(sent)) == [DONE] * 50
        assert list(await sink.deliver(sent)) == [DONE] * 50
    finally:
        await sink.close()
    client = await nats_client(node)
    messages = await stored(client, subject)
    await client.close()
    assert [body["id"] for _, body in messages] == [str(d.envelope.id) for d in sent]
    headers, body = messages[0]
    assert body["data"] == {"n": 0}
    assert headers == {
        "Nats-Expected-Stream": subject,
        "Nats-Msg-Id": str(sent[0].envelope.id),
        "event_id": str(sent[0].envelope.id),
        "event_type": "orders.paid",
        "penstock-attempt": "2",
        "penstock-fence": "7",
        "content-type": "application/json",
        "traceparent": "00-ab",
    }


async def test_a_producers_headers_cannot_command_the_stream(node: NatsNode, subject: str) -> None:
    sink = sink_to(node, subject)
    evil = {"nats-rollup": "all", "Nats-Msg-Id": "mine", "note": "a\r\nNats-Rollup: all"}
    try:
        first = await sink.deliver([delivery({"n": 1}), delivery({"n": 2}, headers=evil)])
    finally:
        await sink.close()
    client = await nats_client(node)
    messages = await stored(client, subject)
    await client.close()
    assert list(first) == [DONE, DONE]
    assert len(messages) == 2
    assert set(messages[1][0]) & {"nats-rollup", "Nats-Rollup", "note"} == set()


async def test_a_subject_that_no_stream_takes_is_tried_again_and_says_so(node: NatsNode) -> None:
    sink = sink_to(node, "nowhere", timeout_s=2)
    try:
        (verdict,) = await sink.deliver([delivery()])
    finally:
        await sink.close()
    assert verdict == Retry(reason="no stream takes nowhere.orders.paid", code="NATS_NO_STREAM")


async def test_without_an_acknowledgement_an_event_is_tried_again(node: NatsNode) -> None:
    client = await nats_client(node)
    heard = await client.subscribe("silent.>")  # somebody listens, and never answers
    await client.flush()
    sink = sink_to(node, "silent", timeout_s=0.5)
    try:
        (verdict,) = await sink.deliver([delivery()])
    finally:
        await sink.close()
    assert (await heard.next_msg(timeout=5)).header is not None
    await client.close()
    assert isinstance(verdict, Retry)
    assert verdict.code == "NATS_TIMEOUT"


async def test_a_publish_that_is_not_permitted_says_so(tmp_path: Path) -> None:
    ada = 'user: ada, password: pw, permissions: { publish: { deny: "s.>" } }'
    rules = f"authorization {{ users: [ {{ {ada} }} ] }}"
    with nats_server(tmp_path, extra=rules) as node:
        await (await nats_client(node, user="ada", password="pw")).close()
        told = {"servers": [node.url], "subject": "s.{topic}", "timeout_s": 0.5, "user": "ada"}
        sink = make(destination("nats", told, secrets=["pw"]), Settings())
        try:
            (verdict,) = await sink.deliver([delivery()])
        finally:
            await sink.close()
    assert isinstance(verdict, Retry)
    assert "permissions violation" in verdict.reason.lower()


async def test_another_stream_than_the_expected_one_is_tried_again_and_says_so(
    node: NatsNode, subject: str
) -> None:
    sink = sink_to(node, subject, stream="OTHER", timeout_s=2)
    try:
        (verdict,) = await sink.deliver([delivery()])
    finally:
        await sink.close()
    assert isinstance(verdict, Retry)
    assert verdict.code == "NATS_WRONG_STREAM"
    assert "OTHER" in verdict.reason


async def test_a_poison_and_an_oversized_event_do_not_stop_their_neighbours(
    node: NatsNode, subject: str
) -> None:
    sink = sink_to(node, subject)
    batch = [delivery({"n": n}) for n in range(98)]
    batch.insert(10, delivery({"n": "x" * 70_000}))
    batch.insert(20, delivery(topic="a..b"))
    batch.insert(30, delivery(topic="a.>"))
    try:
        verdicts = list(await sink.deliver(batch))
    finally:
        await sink.close()
    client = await nats_client(node)
    messages = await stored(client, subject)
    await client.close()
    assert codes([verdicts[10], verdicts[20], verdicts[30]]) == [
        "NATS_TOO_LARGE",
        "NATS_SUBJECT_INVALID",
        "NATS_SUBJECT_INVALID",
    ]
    assert verdicts.count(DONE) == len(messages) == 98


async def test_a_subject_is_made_of_parts(node: NatsNode, subject: str) -> None:
    sink = sink_to(node, f"{subject}.{{tenant}}", format="cloudevents")
    try:
        await sink.deliver([delivery(topic="paid", tenant=TENANT), delivery(topic="paid")])
    finally:
        await sink.close()
    client = await nats_client(node)
    last = await client.jetstream().get_last_msg(subject, f"{subject}.{TENANT}.paid")
    other = await client.jetstream().get_last_msg(subject, f"{subject}.none.paid")
    await client.close()
    assert b'"specversion":"1.0"' in (last.data or b"")
    assert other.seq == 2


async def test_a_server_that_is_away_costs_a_retry_within_the_time_limit() -> None:
    nobody = f"nats://127.0.0.1:{free_port()}"
    sink = make(destination("nats", {"servers": [nobody], "timeout_s": 0.4}), Settings())
    async with asyncio.timeout(5):
        with pytest.raises(ConnectionError, match=nobody):
            await sink.open()
        verdicts = await sink.deliver([delivery(), delivery()])
        await sink.close()
    assert codes(list(verdicts)) == ["NATS_UNREACHABLE"] * 2
    assert isinstance(verdicts[0], Retry)
    assert nobody in verdicts[0].reason


async def test_a_sink_finds_its_server_again_after_a_restart(tmp_path: Path) -> None:
    with nats_server(tmp_path) as node:
        client = await nats_client(node)
        await add_stream(client, "s", "s.>")
        await client.close()
        sink = sink_to(node, "s", timeout_s=0.5)
        try:
            assert list(await sink.deliver([delivery({"n": 1})])) == [DONE]
            node.kill()
            away = await sink.deliver([delivery({"n": 2})])
            assert isinstance(away[0], Retry)
            node.start()
            async with asyncio.timeout(20):
                while isinstance((await sink.deliver([delivery({"n": 3})]))[0], Retry):
                    pass  # each round has its own time limit
        finally:
            await sink.close()


async def test_a_refusal_is_not_forgotten_over_the_end_of_the_connection() -> None:
    sink = make(destination("nats"), Settings())
    for error in (ConnectionResetError("reset"), AuthorizationError("no"), OSError("closed")):
        await sink._on_trouble(error)
    assert "no" in sink._away()
    assert "closed" not in sink._away()


def test_no_password_stands_in_an_address() -> None:
    told = {"servers": ["nats://user:hunter2@h:4222"]}
    with pytest.raises(BadSetting) as caught:
        make(destination("nats", told), Settings())
    assert "hunter2" not in caught.value.explain()


@pytest.mark.parametrize("config", [{"subject": "{0}"}, {"colour": "red"}, {"servers": []}])
def test_a_wrong_configuration_is_refused_with_the_destinations_name(
    config: dict[str, object],
) -> None:
    with pytest.raises(BadSetting, match="destination there"):
        make(destination("nats", config), Settings())


def _nkey() -> tuple[str, str]:
    seed = nkeys.encode_seed(bytes(range(32)), nkeys.PREFIX_BYTE_USER)
    return seed.decode(), nkeys.from_seed(bytearray(seed)).public_key.decode()


OPERATOR, CREDS = operator_mode()
LOGINS: dict[str, tuple[str, dict[str, str], str, dict[str, Any]]] = {
    "token": ('authorization { token: "let-me-in" }', {}, "let-me-in", {"token": "let-me-in"}),
    "password": (
        "authorization { user: ada, password: analytical }",
        {"user": "ada"},
        "analytical",
        {"user": "ada", "password": "analytical"},
    ),
    "nkey": (
        f"authorization {{ users: [ {{ nkey: {_nkey()[1]} }} ] }}",
        {},
        _nkey()[0],
        {"nkeys_seed_str": _nkey()[0]},
    ),
    "creds": (OPERATOR, {}, CREDS, {"user_credentials": RawCredentials(CREDS)}),
}


@pytest.mark.parametrize("kind", LOGINS)
async def test_a_login_by_secret_is_let_in_and_without_it_is_told_why(
    kind: str, tmp_path: Path
) -> None:
    rules, config, secret, options = LOGINS[kind]
    with nats_server(tmp_path, extra=rules) as node:
        client = await nats_client(node, **options)
        await add_stream(client, "s", "s.>")
        await client.close()
        told = {"servers": [node.url], "subject": "s.{topic}", "timeout_s": 2, **config}
        known = make(destination("nats", told, secrets=[secret]), Settings())
        unknown = make(destination("nats", {**told, "timeout_s": 0.3}), Settings())
        try:
            assert list(await known.deliver([delivery()])) == [DONE]
            (refused,) = await unknown.deliver([delivery()])
        finally:
            await known.close()
            await unknown.close()
    assert isinstance(refused, Retry)
    assert refused.code == "NATS_UNREACHABLE"
    assert "authorization" in refused.reason.lower()
    assert secret not in refused.reason
