"""A worker and its destinations: found, changed and lost while it runs; none harms another."""

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest
from tests.integration.relay.conftest import SECRET
from tests.support.destinations import (
    Connection,
    application,
    breaker,
    counts,
    publish,
    publish_many,
    put,
    route_is,
    states,
    work_off,
    working,
)
from tests.support.receiver import Received, Receiver
from tests.support.waiting import until, until_true

from penstock import Event, Penstock
from penstock.kernel.errors import WrongUsage
from penstock.kernel.events import DestinationUnusable
from penstock.outbox import destinations, queue, relay
from penstock.outbox.sinks import stdout
from penstock.outbox.sinks.stdout import StdoutSink


async def _quick_retries(conn: Connection) -> None:
    await conn.execute("update penstock.queue_config set backoff_base_s = 0.1, backoff_cap_s = 0.1")


async def test_a_worker_without_handlers_and_destinations_says_so(ps: Penstock) -> None:
    with pytest.raises(WrongUsage, match="nothing to work on"):
        await work_off(ps)


@pytest.fixture
async def login(database_url: str, conn: Connection) -> AsyncIterator[Callable[[str], Any]]:
    """The address of a login of its own that has one role of ours."""
    made: list[str] = []

    async def make(role: str) -> str:
        parts = urlsplit(database_url)
        name = f"login_{role}_{parts.path.strip('/')}"
        await conn.execute(f"create role {name} login in role {role}")
        made.append(name)
        address = parts.netloc.rpartition("@")[2]
        return urlunsplit(parts._replace(netloc=f"{name}@{address}"))

    yield make
    for name in made:
        await conn.execute(f"drop role {name}")


async def test_an_executor_has_the_rights_to_deliver(
    login: Callable[[str], Any], conn: Connection, receiver: Receiver
) -> None:
    receiver.answering = lambda one: {"/gone": 410, "/bad": 503}.get(one.path, 204)
    for name in ("good", "bad", "gone"):
        await put(conn, name, config={"url": receiver.url(f"/{name}")}, breaker_after=1)
    await put(conn, "typo", config={"ulr": ""})
    await publish(conn, n=1)
    async with working(application(await login("penstock_outbox_executor"))):
        await until(lambda: route_is(conn, "good", {"DELIVERED": 1}), "it is delivered")
        bad = "select count(*) from public.outbox_destinations where name = 'bad'"
        await until(lambda: counts(conn, f"{bad} and breaker <> 'closed'", 1), "it is open")
        disabled = "select count(*) from public.outbox_destinations where not enabled"
        await until(lambda: counts(conn, disabled, 1), "the one that is gone is disabled")
        faulty = "select count(*) from public.outbox_destinations where fault is not null"
        await until(lambda: counts(conn, faulty, 1), "the fault is told")


async def test_a_worker_of_another_queue_needs_no_rights_to_deliver(
    login: Callable[[str], Any], conn: Connection
) -> None:
    ps = Penstock(await login("penstock_inbox_executor"))

    @ps.inbox.on("stripe")
    async def handler(event: Event[dict[str, str]]) -> None:
        del event

    await put(conn, "acme", config={"url": "https://hooks.example.com"})
    async with ps:
        report = await ps.work(only=["inbox", "outbox"], until_idle=True)
    assert report.claimed == 0


async def test_destinations_come_change_and_go_while_a_worker_runs(
    ps: Penstock, conn: Connection, receiver: Receiver
) -> None:
    await put(conn, "first", config={"url": receiver.url("/first")})
    async with working(ps):
        await publish(conn, n=1)
        await until_true(lambda: len(receiver.at("/first")) == 1, "the first is there")
        await put(conn, "second", config={"url": receiver.url("/second")})
        await publish(conn, n=2)
        await until_true(
            lambda: len(receiver.at("/second")) == 1, "the second was taken up", within_s=3
        )
        await put(conn, "second", config={"url": receiver.url("/moved")})

        async def moved() -> bool:
            await publish(conn, n=3)
            return bool(receiver.at("/moved"))

        await until(moved, "the change counts", within_s=3)
        await put(conn, "first", config={"url": receiver.url("/first")}, enabled=False)
        await until(lambda: _no_more(conn, receiver, "/first"), "it is taken away", within_s=5)
        await put(conn, "first", config={"url": receiver.url("/first")}, enabled=True)
        total: int = await conn.fetchval(
            "select count(*) from app.outbox_all where route = 'first'"
        )
        await until(
            lambda: route_is(conn, "first", {"DELIVERED": total}),
            "what waited is delivered",
            within_s=5,
        )
    assert max(receiver.ids("/first").values()) == 1


async def test_an_idle_worker_looks_before_there_is_work(
    ps: Penstock, conn: Connection, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that no event waits until it has looked. Here no claim ever looks, but for the first."""
    looks: list[int] = []

    async def serving(conn: Any) -> Any:
        looks.append(1)
        return await found(conn)

    found = destinations.serving
    monkeypatch.setattr(destinations, "serving", serving)
    for module, name in ((relay, "LOOK_S"), (queue, "ROUTING_S")):
        monkeypatch.setattr(module, name, 3600.0)
        monkeypatch.setattr(module, f"IDLE_{name}", 0.0)
    topic = ps.outbox.topic("orders.paid", dict[str, int])
    topic.on()(_ignore)
    async with working(ps):
        await until_true(lambda: looks, "it has looked")
        await put(conn, "first", config={"url": receiver.url("/first")})
        before = len(looks)
        await until_true(lambda: len(looks) > before + 2, "it looks while idle")
        await publish(conn, n=1)
        await until_true(lambda: len(receiver.at("/first")) == 1, "and delivers")


async def _ignore(event: Event[dict[str, int]]) -> None:
    del event


async def _no_more(conn: Connection, receiver: Receiver, path: str) -> bool:
    """Whether two newly published events in a row have not come, while others came."""
    before, others = len(receiver.at(path)), len(receiver.seen)
    await publish(conn, n=0)
    await until_true(lambda: len(receiver.seen) > others, "another destination has it")
    await asyncio.sleep(0.05)
    return len(receiver.at(path)) == before


async def test_routes_of_one_event_are_retried_each_on_its_own(
    ps: Penstock, conn: Connection, receiver: Receiver
) -> None:
    receiver.answering = lambda one: (
        503 if one.path == "/shaky" and len(receiver.at("/shaky")) < 3 else 204
    )
    await _quick_retries(conn)
    await put(conn, "shaky", config={"url": receiver.url("/shaky")})
    await put(conn, "steady", config={"url": receiver.url("/steady")})
    event = await publish(conn, n=1)
    async with working(ps):
        await until(lambda: route_is(conn, "shaky", {"DELIVERED": 1}), "the shaky one has it too")
    assert receiver.ids("/steady") == {str(event): 1}
    assert receiver.ids("/shaky") == {str(event): 3}
    assert await conn.fetchval("select count(*) from public.outbox") == 0


async def test_a_poisonous_event_delays_nobody(
    ps: Penstock, conn: Connection, receiver: Receiver
) -> None:
    receiver.answering = lambda one: 500 if one.document["data"].get("poison") else 204
    await put(conn, "acme", config={"url": receiver.url()}, concurrency=2)
    poison = await publish(conn, poison=True)
    good = await publish_many(conn, 40)
    async with working(ps):
        await until(lambda: _delivered(conn, 40), "the neighbours are delivered", within_s=5)
    assert receiver.ids()[str(poison)] < 5
    assert {receiver.ids()[str(event)] for event in good} == {1}
    assert await breaker(conn, "acme") == "closed"


async def _delivered(conn: Connection, count: int) -> bool:
    found: int = await conn.fetchval(
        "select count(*) from public.outbox_archive where state = 'DELIVERED'"
    )
    return found == count


async def test_a_slow_destination_does_not_hold_up_a_quick_one(
    ps: Penstock, conn: Connection, receiver: Receiver
) -> None:
    gate = asyncio.Event()

    async def answer(one: Received) -> int:
        if one.path == "/slow":
            await gate.wait()
        return 204

    receiver.answering = answer
    await put(conn, "slow", config={"url": receiver.url("/slow")}, concurrency=2)
    await put(conn, "quick", config={"url": receiver.url("/quick")})
    await publish_many(conn, 200)
    async with working(ps):
        await until(lambda: route_is(conn, "quick", {"DELIVERED": 200}), "the quick one has all")
        assert len(receiver.at("/slow")) == 2
        leased: int = await conn.fetchval(
            "select count(*) from public.outbox where processing_token is not null"
        )
        assert leased <= 4, "a worker takes no more for a slow one than it can send soon"
        gate.set()
        await until(lambda: route_is(conn, "slow", {"DELIVERED": 200}), "the slow one too")


async def test_concurrency_is_counted_by_destination_over_all_its_routes(
    ps: Penstock, conn: Connection, receiver: Receiver
) -> None:
    async def answer(_one: Received) -> int:
        await asyncio.sleep(0.01)
        return 204

    receiver.answering = answer
    await put(conn, "acme", config={"url": receiver.url()}, concurrency=3)
    await conn.execute("select app.outbox_put_route('more', 'refunds', 'acme', 'test')")
    await publish_many(conn, 30)
    await publish_many(conn, 30, "refunds")
    await work_off(ps)
    assert len(receiver.seen) == 60
    assert receiver.most["/hook"] == 3


async def test_one_bad_destination_stops_no_other(
    ps: Penstock, conn: Connection, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "penstock.outbox.sinks.kafka", None)
    monkeypatch.delenv("UNSET_SECRET", raising=False)
    await put(conn, "good", config={"url": receiver.url("/good")})
    await put(conn, "typo", config={"ulr": receiver.url("/typo")})
    await put(conn, "secret", config={"url": receiver.url("/secret")}, secrets=["env:UNSET_SECRET"])
    await put(conn, "extra", "kafka", config={})
    event = await publish(conn, n=1)
    async with working(ps) as observed:
        await until_true(lambda: receiver.at("/good"), "the good one is served")
        faults = "select count(*) from app.outbox_destination_stats where fault is not null"
        await until(lambda: counts(conn, faults, 3), "operators see three faults")
        faulty = [one for one in observed if isinstance(one, DestinationUnusable)]
        told = {one.destination: one.reason for one in faulty}
        assert told.keys() == {"typo", "secret", "extra"}
        assert "ulr" in told["typo"]
        assert "UNSET_SECRET" in told["secret"]
        assert "MissingExtra" in told["extra"]
        assert len(faulty) == 3, "each is told once"
        monkeypatch.setenv("UNSET_SECRET", SECRET)
        await put(conn, "typo", config={"url": receiver.url("/typo")})
        await until_true(lambda: receiver.at("/secret"), "a secret that appears is found")
        await until_true(lambda: receiver.at("/typo"), "a configuration put right counts")
    assert receiver.ids("/secret") == receiver.ids("/typo") == {str(event): 1}
    row = await conn.fetchrow(
        "select attempts, state from app.outbox_all left join public.outbox"
        " using (seq, route) where route = 'extra'"
    )
    assert row is not None
    assert tuple(row) == (0, "READY"), "its delivery waits, and no attempt was burnt"


async def test_a_destination_that_does_not_open_holds_up_nobody(
    ps: Penstock, conn: Connection, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stuck(StdoutSink):
        async def open(self) -> None:
            await asyncio.Event().wait()

    monkeypatch.setattr(stdout, "make", lambda _destination, _settings: Stuck())
    await put(conn, "stuck", "stdout")
    await put(conn, "good", config={"url": receiver.url()})
    await publish(conn, n=1)
    async with working(ps):
        await until_true(lambda: receiver.seen, "the good one is served", within_s=3)


async def test_a_paused_destination_waits_and_goes_on(
    ps: Penstock, conn: Connection, receiver: Receiver
) -> None:
    await put(conn, "acme", config={"url": receiver.url("/acme")})
    await put(conn, "other", config={"url": receiver.url("/other")})
    await conn.execute("select penstock.pause_target('destination/acme', 'test')")
    await publish(conn, n=1)
    async with working(ps):
        await until_true(lambda: receiver.at("/other"), "the other is served")
        (state,) = await states(conn, "acme")
        assert state in ("READY", "WAITING")
        await conn.execute("select penstock.resume_target('destination/acme', 'test')")
        await until_true(lambda: receiver.at("/acme"), "resumed, it is served at once")


async def test_a_handler_and_a_destination_get_the_same_event(
    database_url: str, conn: Connection, receiver: Receiver
) -> None:
    ps = application(database_url)
    topic = ps.outbox.topic("orders.paid", dict[str, int])
    seen: list[str] = []

    @topic.on()
    async def handler(event: Event[dict[str, int]]) -> None:
        seen.append(str(event.id))

    await put(conn, "acme", config={"url": receiver.url()})
    events = [str(event) for event in await publish_many(conn, 20)]
    report = await work_off(ps)
    assert report.finished == 40
    assert sorted(seen) == sorted(events)
    assert receiver.ids() == Counter(events)


async def test_a_fault_of_an_earlier_worker_is_taken_back(
    ps: Penstock, conn: Connection, receiver: Receiver
) -> None:
    await put(conn, "acme", config={"url": receiver.url()})
    await conn.execute("select app.outbox_fault('{acme}', '{its secret was missing}')")
    faults = "select count(*) from app.outbox_destination_stats where fault is not null"
    assert await counts(conn, faults, 1)
    async with working(ps):
        await until(lambda: counts(conn, faults, 0), "it is no longer said to be unusable")


async def test_a_destination_cannot_be_made_to_use_another_secret_of_the_worker(
    database_url: str, conn: Connection, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEDGER_PASSWORD", "not for anybody")
    await put(conn, "mine", config={"url": receiver.url()}, secrets=["env:LEDGER_PASSWORD"])
    await publish(conn, n=1)
    async with working(application(database_url)) as observed:
        await until_true(
            lambda: any(isinstance(one, DestinationUnusable) for one in observed), "it is told"
        )
    (told, *_) = [one for one in observed if isinstance(one, DestinationUnusable)]
    assert "not for receivers" in told.reason
    assert receiver.seen == []


async def test_a_function_in_the_database_is_a_destination_too(
    ps: Penstock, conn: Connection
) -> None:
    await conn.execute("create schema shop; create table shop.paid (id text, body jsonb)")
    await conn.execute(
        "create function shop.take(p_event jsonb) returns void language sql as"
        " $$ insert into shop.paid select p_event ->> 'id', p_event $$"
    )
    await conn.execute("insert into public.outbox_functions (name) values ('shop.take')")
    await put(conn, "books", "sql", config={"function": "shop.take"})
    event = await publish(conn, n=1)
    report = await work_off(ps)
    assert report.finished == 1
    assert [row["id"] for row in await conn.fetch("select id from shop.paid")] == [str(event)]


async def test_working_off_once_takes_no_more_than_its_limit(
    ps: Penstock, conn: Connection, receiver: Receiver
) -> None:
    await put(conn, "one", config={"url": receiver.url("/one")})
    await put(conn, "two", config={"url": receiver.url("/two")})
    await publish_many(conn, 20)
    async with ps:
        report = await ps.run_once("outbox", limit=7)
    assert report.finished == len(receiver.seen) == 7
