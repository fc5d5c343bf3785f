"""Events that go straight on: signed over HTTP, or to an allowed function in the same commit."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID, uuid4

import pytest
from aiohttp import web
from tests.support.inbox import SqlInbox, arrival
from tests.support.waiting import until

from penstock import Event, Penstock
from penstock.inbox import store
from penstock.kernel.events import Observation, SourceUnusable
from penstock.kernel.secrets import Secret
from penstock.kernel.settings import Settings, with_values
from penstock.kernel.signing import signature_headers
from penstock.testing import drain

ROUTE_SECRET = "whsec_cm91dGUtc2VjcmV0LWZvci10ZXN0cw=="


@pytest.fixture
def ps(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Penstock:
    monkeypatch.setenv("ROUTE_SECRET", ROUTE_SECRET)
    settings = with_values(Settings(), http_allow_private=("127.0.0.1",))
    return Penstock(database_url, settings=settings)


class Receiver:
    """An endpoint that keeps what it gets and answers what it is told."""

    def __init__(self) -> None:
        self.status = 200
        self.got: list[tuple[bytes, dict[str, str]]] = []
        self.url = ""
        self.takes_s = 0.0
        self.now = self.most = 0

    async def take(self, request: web.Request) -> web.Response:
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.now += 1
        self.most = max(self.most, self.now)
        self.got.append((await request.read(), headers))
        await asyncio.sleep(self.takes_s)
        self.now -= 1
        return web.Response(status=self.status)


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    found = Receiver()
    app = web.Application()
    app.router.add_post("/in", found.take)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    found.url = f"http://127.0.0.1:{port}/in"
    yield found
    await runner.cleanup()


async def _route(inbox: SqlInbox, kind: str, target: str) -> None:
    secret = "env:ROUTE_SECRET" if kind == "http" else None
    await store.put_route(inbox.conn, "stripe", "*", kind, target, secret, "test", None)


async def test_an_http_route_sends_the_bytes_signed_under_one_id(
    ps: Penstock, inbox: SqlInbox, stripe: UUID, receiver: Receiver
) -> None:
    await _route(inbox, "http", receiver.url)
    event = arrival(stripe, "evt_1", '{"n":   1}')
    await inbox.receive(event)
    receiver.status = 503
    await drain(ps, only={"inbox"})
    assert await inbox.status("evt_1") == "failed"
    await inbox.conn.execute("update webhook_events set next_attempt_at = penstock.clock()")
    await inbox.tend()
    receiver.status = 200
    await drain(ps, only={"inbox"})
    assert await inbox.status("evt_1") == "success"
    (first, _), (body, headers) = receiver.got
    assert first == body == b'{"n":   1}'
    assert headers["webhook-id"] == str(event.id)
    assert headers["penstock-event-id"] == "evt_1"
    signed = signature_headers(
        [Secret(ROUTE_SECRET)],
        message_id=str(event.id),
        timestamp_s=int(headers["webhook-timestamp"]),
        body=body,
    )
    assert headers["webhook-signature"] == signed["webhook-signature"]


async def test_routes_too_keep_to_the_concurrency_of_the_process(
    ps: Penstock, database_url: str, inbox: SqlInbox, stripe: UUID, receiver: Receiver
) -> None:
    await _route(inbox, "http", receiver.url)
    await inbox.send(stripe, *(f"evt_{n}" for n in range(6)))
    receiver.takes_s = 0.05
    narrow = Penstock(database_url, settings=with_values(ps.settings, concurrency=1))
    await drain(narrow, only={"inbox"})
    assert (len(receiver.got), receiver.most) == (6, 1)


async def test_an_http_route_to_a_forbidden_address_is_dead_at_once(
    ps: Penstock, inbox: SqlInbox, stripe: UUID
) -> None:
    await _route(inbox, "http", "https://169.254.169.254/latest")
    (event,) = await inbox.send(stripe, "evt_1")
    await drain(ps, only={"inbox"})
    row = await inbox.row(event)
    assert (row["status"], row["error_code"]) == ("dead_letter", "ADDRESS_REFUSED")


async def test_a_sql_route_and_the_end_of_the_event_are_one_commit(
    ps: Penstock, inbox: SqlInbox, stripe: UUID
) -> None:
    await inbox.conn.execute("""
        create function public.take(p_event jsonb) returns void language sql as $$
            insert into effects (event_id, note)
            values (p_event ->> 'event_id', p_event -> 'data' ->> 'n') $$;
        insert into webhook.route_functions values ('public.take')""")
    await _route(inbox, "sql", "public.take")
    await inbox.send(stripe, "evt_1")
    await drain(ps, only={"inbox"})
    rows = await inbox.conn.fetch("select event_id, note from effects")
    assert [tuple(row) for row in rows] == [("evt_1", "1")]
    assert await inbox.status("evt_1") == "success"


async def test_a_function_taken_off_the_list_is_no_longer_called(
    ps: Penstock, inbox: SqlInbox, stripe: UUID
) -> None:
    await inbox.conn.execute("insert into webhook.route_functions values ('pg_catalog.pg_sleep')")
    await _route(inbox, "sql", "pg_catalog.pg_sleep")
    await inbox.conn.execute("delete from webhook.route_functions")
    (event,) = await inbox.send(stripe, "evt_1")
    await drain(ps, only={"inbox"})
    assert (await inbox.row(event))["status"] == "failed"


async def test_a_handler_of_the_application_goes_before_a_route(
    ps: Penstock, inbox: SqlInbox, stripe: UUID, receiver: Receiver
) -> None:
    await _route(inbox, "http", receiver.url)
    seen: list[str] = []

    @ps.inbox.on("stripe", "mine")
    async def take(event: Event[Any]) -> None:
        seen.append(event.topic)

    await inbox.send(stripe, "evt_1", kind="mine")
    await inbox.send(stripe, "evt_2", kind="other")
    await drain(ps, only={"inbox"})
    assert (seen, len(receiver.got)) == (["mine"], 1)


@asynccontextmanager
async def _working(ps: Penstock) -> AsyncIterator[list[Observation]]:
    seen: list[Observation] = []
    ps.subscribe(seen.append)

    @ps.inbox.on("other")  # a worker has to have something to do when it starts
    async def other(event: Event[dict[str, Any]]) -> None: ...

    async with ps:
        task = asyncio.create_task(ps.work(only=["inbox"]))
        try:
            yield seen
            assert not task.done(), "the worker ended by itself"
        finally:
            ps.stop()
            await asyncio.wait_for(task, 20)


async def _stored_as(inbox: SqlInbox, event_id: str, status: str) -> bool:
    return await inbox.status(event_id) == status


async def test_routes_come_change_and_go_while_a_worker_runs(
    ps: Penstock, inbox: SqlInbox, stripe: UUID, receiver: Receiver
) -> None:
    async with _working(ps):
        await inbox.send(stripe, "evt_1")
        await _route(inbox, "http", receiver.url)
        await until(lambda: _stored_as(inbox, "evt_1", "success"), "a new route takes it")
        receiver.status = 400
        await inbox.conn.execute("""
            create function public.take(p_event jsonb) returns void language sql as $$
                insert into effects (event_id) values (p_event ->> 'event_id') $$;
            insert into webhook.route_functions values ('public.take')""")
        await _route(inbox, "sql", "public.take")
        await until(lambda: _moved(inbox, stripe), "the changed route takes the next ones")
        await inbox.conn.execute("update webhook_routes set enabled = false")
        await until(lambda: _left_alone(inbox, stripe), "without a route they wait")


async def _moved(inbox: SqlInbox, stripe: UUID) -> bool:
    """Whether an event sent now goes to the function; the worker may not have looked yet."""
    event_id = f"evt_{uuid4()}"
    await inbox.send(stripe, event_id)
    await until(lambda: _ended(inbox, event_id), "it is handled either way")
    return bool(await inbox.conn.fetchval("select count(*) from effects"))


async def _ended(inbox: SqlInbox, event_id: str) -> bool:
    return await inbox.status(event_id) in {"success", "dead_letter"}


async def _left_alone(inbox: SqlInbox, stripe: UUID) -> bool:
    event_id = f"evt_{uuid4()}"
    await inbox.send(stripe, event_id)
    for _ in range(20):
        if await _ended(inbox, event_id):
            return False
        await asyncio.sleep(0.05)
    return True


async def test_a_route_that_cannot_be_used_holds_its_events_and_nobody_elses(
    ps: Penstock, inbox: SqlInbox, stripe: UUID, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LATER_SECRET", raising=False)
    await _route(inbox, "http", receiver.url)
    args = ("charge.*", "http", receiver.url, "env:LATER_SECRET", "test", None)
    await store.put_route(inbox.conn, "stripe", *args)
    await inbox.send(stripe, "evt_1", kind="charge.refunded")
    await inbox.send(stripe, "evt_2", kind="invoice.paid")
    async with _working(ps) as seen:
        await until(lambda: _stored_as(inbox, "evt_2", "success"), "the other route works")
        (told,) = [each for each in seen if isinstance(each, SourceUnusable)]
        assert (told.source, "LATER_SECRET" in told.reason) == ("stripe", True)
        assert await inbox.status("evt_1") == "pending", "and is not sent unsigned, nor elsewhere"
        monkeypatch.setenv("LATER_SECRET", ROUTE_SECRET)
        await until(lambda: _stored_as(inbox, "evt_1", "success"), "a secret that appears is found")
