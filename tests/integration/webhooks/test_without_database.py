"""While the database is away nothing is acknowledged; when it is back, nothing needs a restart."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
from tests.support.providers import CASES
from tests.support.proxy import Proxy
from tests.support.waiting import until
from tests.support.webhooks import Connection, Door, Reply, add_source, open_door

from penstock.application import Penstock
from penstock.inbox import receive

STRIPE = CASES["stripe"]
pytestmark = pytest.mark.fault


@dataclass(frozen=True)
class Cable:
    """A door whose database is at the other end of a cable."""

    door: Door
    proxy: Proxy

    async def deliver(self, event_id: str) -> Reply:
        return await self.door.deliver(STRIPE, STRIPE.body(event_id))

    async def stored(self) -> list[str]:
        return [row["event_id"] for row in await self.door.events()]


@pytest.fixture
async def cable(database_url: str, conn: Connection, secrets: None) -> AsyncIterator[Cable]:
    await add_source(conn, STRIPE)
    async with Proxy(database_url) as proxy, open_door(Penstock(proxy.url), conn) as door:
        made = Cable(door, proxy)
        assert (await made.deliver("first")).status == 200
        yield made


def is_unknown(answer: Reply) -> bool:
    return (answer.status, json.loads(answer.body)["code"]) == (503, "PN003") and bool(
        answer.headers["retry-after"]
    )


async def test_deliveries_are_refused_during_an_outage_and_taken_after_it(cable: Cable) -> None:
    cable.proxy.refusing = True
    cable.proxy.cut()
    for _ in range(3):
        assert is_unknown(await cable.deliver("second"))
    assert await cable.stored() == ["first"]
    cable.proxy.refusing = False

    async def taken() -> bool:
        return (await cable.deliver("second")).status == 200

    await until(taken, "the delivery is taken after the outage")
    assert await cable.stored() == ["first", "second"]


async def test_a_lost_answer_of_the_database_is_an_unknown_that_a_repeat_settles(
    cable: Cable,
) -> None:
    cable.proxy.swallow_answer_to = lambda data: b"second" in data
    assert is_unknown(await cable.deliver("second"))
    assert await cable.stored() == ["first", "second"]
    assert (await cable.deliver("second")).status == 200
    assert await cable.stored() == ["first", "second"]


async def test_a_dead_network_is_answered_in_time(
    cable: Cable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receive, "ANSWER_S", 0.5)
    cable.proxy.stall()
    assert is_unknown(await cable.deliver("second"))
    cable.proxy.cut()

    async def taken() -> bool:
        return (await cable.deliver("second")).status == 200

    await until(taken, "the delivery is taken after the stall")
    assert await cable.stored() == ["first", "second"]
