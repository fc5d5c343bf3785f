"""A real NATS cluster whose leader is killed while events are delivered to it."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.brokers import (
    NatsNode,
    add_stream,
    leader_of,
    nats_client,
    nats_cluster,
    repeated,
    stored,
)
from tests.support.deliveries import delivery, destination
from tests.support.waiting import until

from penstock.kernel.settings import Settings
from penstock.kernel.verdict import Done, Retry
from penstock.outbox.sinks.nats import make

pytestmark = [pytest.mark.fault, pytest.mark.slow]


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[NatsNode]]:
    with nats_cluster(tmp_path) as running:
        yield running


async def test_with_the_leader_killed_every_event_is_stored_and_no_id_is_there_twice(
    nodes: list[NatsNode],
) -> None:
    client = await nats_client(*nodes)
    await add_stream(client, "orders", "orders.>", replicas=3)
    leader = await leader_of(client, "orders")
    told = {"servers": [node.url for node in nodes], "stream": "orders", "timeout_s": 1}
    sink = make(destination("nats", told), Settings())
    waiting = [delivery({"n": n}) for n in range(600)]
    sent = [str(one.envelope.id) for one in waiting]
    tried = 0
    try:
        async with asyncio.timeout(50):
            while waiting:
                batch = waiting[:100]
                delivering = asyncio.create_task(sink.deliver(batch))
                tried += 1
                if tried == 3:  # the batch is on its way
                    await asyncio.sleep(0)
                    next(node for node in nodes if node.name == leader).kill()
                verdicts = await delivering
                assert {type(verdict) for verdict in verdicts} <= {Done, Retry}
                again = [d for d, v in zip(batch, verdicts, strict=True) if isinstance(v, Retry)]
                waiting = waiting[100:] + again
    finally:
        await sink.close()
    assert tried > 6, "the kill cost at least one repetition"

    async def led() -> bool:
        return await leader_of(client, "orders") not in {"", leader}

    await until(led, "another node leads", within_s=20)
    messages = await stored(client, "orders")
    await client.close()
    ids = [headers["Nats-Msg-Id"] for headers, _ in messages]
    assert set(ids) == set(sent)
    assert repeated(ids) == {}, "the stream knows an id within its duplicate window"
    assert [body["id"] for _, body in messages] == ids
