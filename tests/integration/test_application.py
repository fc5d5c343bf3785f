"""The application object: opens nothing by itself, lends what products share, closes it again."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any, TypeAlias

import asyncpg
import pytest
from tests.support.waiting import until_true

import penstock
from penstock import Event, Penstock, Settings
from penstock.kernel.errors import BadSetting, NoDatabase, NotOpened, WrongUsage
from penstock.kernel.events import BackgroundFailed, Observation
from penstock.kernel.settings import with_values
from penstock.kernel.worker import Worker

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


def test_every_public_name_can_be_had() -> None:
    for name in penstock.__all__:
        assert getattr(penstock, name) is not None, name
    missing = "Nothing"
    with pytest.raises(AttributeError, match="Nothing"):
        getattr(penstock, missing)


def test_importing_it_loads_no_server_and_no_other_driver() -> None:
    heavy = "starlette uvicorn aiohttp rich psycopg sqlalchemy django pydantic opentelemetry"
    program = (
        "import sys, penstock; penstock.Penstock; "
        f"print(*sorted(set('{heavy}'.split()) & set(sys.modules)))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=30
    )
    assert ran.stdout.strip() == ""


async def test_building_it_opens_nothing() -> None:
    ps = Penstock("postgresql://nobody@127.0.0.1:1/nowhere")
    assert not ps.is_open
    with pytest.raises(NotOpened):
        async with ps.transaction():
            pass
    with pytest.raises(NotOpened):
        await ps.work()
    assert not ps.stop()


async def test_without_an_address_opening_says_so() -> None:
    with pytest.raises(NoDatabase):
        await Penstock().__aenter__()


@pytest.mark.parametrize("address", ["", "mysql://x", "postgres://host:port/x"])
def test_a_bad_address_is_refused_without_being_shown(address: str) -> None:
    with pytest.raises(BadSetting) as caught:
        Penstock(address)
    assert "host:port/x" not in str(caught.value)


def test_the_environment_describes_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PENSTOCK_DATABASE_URL", "postgresql://shop@db/shop")
    monkeypatch.setenv("PENSTOCK_CONCURRENCY", "3")
    ps = Penstock.from_env()
    assert ps.settings.require_database() == "postgresql://shop@db/shop"
    assert ps.settings.concurrency == 3


async def test_a_transaction_commits_at_its_end_or_not_at_all(
    database_url: str, conn: Connection
) -> None:
    await conn.execute("create table t (n int)")

    async def fail(ps: Penstock) -> None:
        async with ps.transaction() as tx:
            await tx.execute("insert into t values (2)")
            raise KeyError

    async with Penstock(database_url) as ps:
        async with ps.transaction() as tx:
            await tx.execute("insert into t values (1)")
            assert await tx.fetchval("select count(*) from t") == 1
            async with tx.savepoint():
                await tx.executemany("insert into t values ($1)", [(7,), (8,)])
        with pytest.raises(KeyError):
            await fail(ps)
    rows = await conn.fetch("select n from t order by n")
    assert [row["n"] for row in rows] == [1, 7, 8]


async def test_opening_twice_closes_once(database_url: str) -> None:
    ps = Penstock(database_url)
    async with ps:
        async with ps:
            pass
        async with ps.transaction() as tx:
            assert await tx.fetchval("select 1") == 1
        with pytest.raises(WrongUsage, match="while the object is open"):
            ps.use(Settings())
    assert not ps.is_open
    ps.use(with_values(ps.settings, concurrency=2))


async def test_a_lifespan_works_until_the_application_ends(
    database_url: str, conn: Connection
) -> None:
    ps = Penstock(database_url)
    topic = ps.outbox.topic("jobs", dict)
    done: list[str] = []

    @topic.on()
    async def handler(event: Event[dict[str, Any]]) -> None:
        done.append(event.data["name"])

    async with conn.transaction():
        await topic.publish(conn, {"name": "a"})
    async with ps.lifespan(work=["outbox"])(object()):
        for _ in range(500):
            if done:
                break
            await conn.fetchval("select pg_sleep(0.02)")
    assert done == ["a"]
    assert not ps.is_open


async def get(app: Any, path: str) -> tuple[int, bytes]:
    """Ask an ASGI application."""
    sent: list[dict[str, Any]] = []
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": [],
    }

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return sent[0]["status"], b"".join(part.get("body", b"") for part in sent[1:])


async def test_the_interface_answers_503_until_it_is_opened(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    ps = Penstock(database_url)
    app = ps.asgi()
    status, body = await get(app, "/readyz")
    assert (status, json.loads(body)["code"]) == (503, "PN010")
    assert "lifespan=ps.lifespan()" in caplog.text
    async with ps:
        assert (await get(app, "/readyz"))[0] == 200
        assert (await get(app, "/healthz"))[0] == 200
        assert (await get(app, "/nothing"))[0] == 404
    assert (await get(app, "/readyz"))[0] == 503


async def test_served_alone_it_opens_and_closes_by_itself(database_url: str) -> None:
    ps = Penstock(database_url)
    opened: list[bool] = []
    sent: list[str] = []

    async def receive() -> dict[str, Any]:
        opened.append(ps.is_open)
        return {"type": "lifespan.startup" if len(opened) == 1 else "lifespan.shutdown"}

    async def send(message: Any) -> None:
        sent.append(message["type"])

    app: Any = ps.asgi()
    await app({"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}, receive, send)
    assert opened == [False, True]
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    assert not ps.is_open


async def test_hooks_and_resources_are_registered_by_decorators(database_url: str) -> None:
    ps = Penstock(database_url)

    @ps.resource
    async def words() -> AsyncIterator[list[str]]:
        yield ["word"]

    @ps.around
    async def watch(event: Event[Any], attempt: penstock.Attempt) -> AsyncIterator[None]:
        yield

    assert callable(words)
    assert callable(watch)
    assert ps.hooks == [watch]


async def test_a_part_that_fails_beside_the_work_is_named(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(self: Worker, queues: list[str]) -> None:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(Worker, "_heartbeat", broken)
    ps = Penstock(database_url)
    seen: list[Observation] = []
    ps.subscribe(seen.append)

    @ps.outbox.topic("t", dict[str, Any]).on()
    async def take(event: Event[dict[str, Any]]) -> None: ...

    async with ps:
        work = asyncio.create_task(ps.work(only=["outbox"]))
        await until_true(
            lambda: BackgroundFailed("heartbeat", "RuntimeError") in seen, "it is said"
        )
        assert not work.done(), "the work goes on"
        ps.stop()
        await work
