"""`penstock work` posting webhooks, killed between the send and the finish; and to our own inbox.

The second test is both ends at once: an outbox in one database, an inbox in another, real processes
on each side killed at random. Effects must equal events: none missing, none doubled.
"""

import asyncio
import json
import os
import random
import signal
import socket
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path
from time import monotonic
from typing import Any
from uuid import uuid4

import asyncpg
import pytest
from tests.support.database import cloned
from tests.support.destinations import publish_many, put
from tests.support.outbox import Connection, SqlOutbox
from tests.support.programs import Program, running
from tests.support.receiver import Receiver, receiving
from tests.support.waiting import until, until_true

from penstock.postgres import Cluster

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.timeout(240)]

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
POINTS = ["after_claim", "before_effect", "after_effect", "before_finish", "after_finish"]
CHAOS_S = 15.0
APPLICATION = """
from penstock import Event, Penstock, Tx

ps = Penstock.from_env()


@ps.inbox.on("upstream")
async def take(event: Event[dict], tx: Tx) -> None:
    await tx.execute("insert into public.effects values ($1)", event.data["id"])
"""


class Sides:
    """Processes of the command line by name: started, killed and started again."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._stack = ExitStack()
        self._commands: dict[str, tuple[list[str], dict[str, str]]] = {}
        self.programs: dict[str, Program] = {}

    def __enter__(self) -> "Sides":
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def start(self, name: str, *arguments: str, **environ: str) -> Program:
        """Start a process."""
        settings = {"PENSTOCK_LISTEN": "off", "HOOK_SECRET": SECRET, **environ}
        settings["PENSTOCK_HTTP_ALLOW_PRIVATE"] = "127.0.0.1"
        self._commands[name] = (list(arguments), settings)
        return self._run(name)

    def kill(self, name: str) -> int:
        """Kill it with -9; returns its exit code."""
        return self.programs[name].stop(signal.SIGKILL)

    def again(self, name: str) -> None:
        """Start it again as it was."""
        self._run(name)

    def _run(self, name: str) -> Program:
        arguments, settings = self._commands[name]
        place = self._directory / f"{name}-{uuid4().hex}"
        place.mkdir()
        (place / "shop.py").write_text(APPLICATION)
        program = self._stack.enter_context(running(arguments, place, settings))
        self.programs[name] = program
        return program


@pytest.fixture
def sides(tmp_path: Path) -> Iterator[Sides]:
    """Processes that end with the test."""
    with Sides(tmp_path) as found:
        yield found


@pytest.fixture
async def outbox(conn: Connection) -> SqlOutbox:
    """The outbox with short leases, so that what a killed worker held comes round soon."""
    sql = SqlOutbox(conn)
    await sql.policy(lease_s=1, backoff_base_s=0.1, backoff_cap_s=0.3, max_attempts=1000)
    return sql


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    """A receiver that outlives the workers."""
    async with receiving() as one:
        yield one


async def _died(program: Program) -> int:
    await until_true(lambda: program.process.poll() is not None, "it died", within_s=30)
    code: int = program.process.returncode
    return code


async def _empty(conn: Connection) -> bool:
    return not await conn.fetchval("select count(*) from public.outbox")


async def test_killed_between_send_and_finish_the_receiver_sees_the_same_id_again(
    database_url: str, outbox: SqlOutbox, receiver: Receiver, sides: Sides
) -> None:
    await put(outbox.conn, "acme", config={"url": receiver.url()}, secrets=["env:HOOK_SECRET"])
    ids: list[str] = []
    for point in POINTS:
        ids += map(str, await publish_many(outbox.conn, 5))
        program = sides.start(
            point,
            "work",
            "--only",
            "outbox",
            PENSTOCK_DATABASE_URL=database_url,
            PENSTOCK_FAILPOINTS=f"{point}=kill",
        )
        assert await _died(program) == -signal.SIGKILL, program.output
    sides.start("last", "work", "--only", "outbox", PENSTOCK_DATABASE_URL=database_url)
    await until(lambda: _empty(outbox.conn), "everything is delivered", within_s=30)
    seen = receiver.ids()
    assert set(seen) == set(ids), "none is lost, and no other id is sent"
    assert max(seen.values()) > 1, "what was sent and not finished was sent again"
    fences: dict[str, list[int]] = {}
    for one in receiver.seen:
        fences.setdefault(one.id, []).append(int(one.headers["penstock-fence"]))
    assert all(len(set(each)) == len(each) for each in fences.values()), "each under a new fence"


async def test_rate_and_breaker_hold_for_two_processes(
    database_url: str, outbox: SqlOutbox, receiver: Receiver, sides: Sides
) -> None:
    rate = 40
    limits: dict[str, Any] = {
        "rate_per_s": rate,
        "breaker_after": 3,
        "breaker_pause_s": 60,
        "concurrency": 4,
    }
    await put(outbox.conn, "acme", config={"url": receiver.url()}, **limits)
    for name in ("one", "two"):
        sides.start(name, "work", "--only", "outbox", PENSTOCK_DATABASE_URL=database_url)
    await until(lambda: _workers(outbox.conn, 2), "both work", within_s=30)
    await publish_many(outbox.conn, 400)
    await until_true(lambda: len(receiver.seen) >= 120, "some have come", within_s=20)
    receiver.answering = lambda _one: 503
    times = [one.at for one in receiver.seen]
    assert len(times) / (times[-1] - times[0]) <= rate * 1.25, "the rate is that of both together"
    state = "select breaker from public.outbox_destinations"
    await until(lambda: _equals(outbox.conn, state, "open"), "it opened")
    leased = "select leased from app.outbox_stats"
    await until(lambda: _equals(outbox.conn, leased, 0), "what was claimed is given back")
    sent = len(receiver.seen)
    await publish_many(outbox.conn, 5)
    waiting = "select count(*) from public.outbox where route = 'acme' and pos is null"
    left = await outbox.conn.fetchval("select count(*) from public.outbox where topic <> 'x'")
    await until(lambda: _equals(outbox.conn, waiting, left), "both have looked, and set it aside")
    assert len(receiver.seen) == sent, "nobody sends while it is open"


async def _workers(conn: Connection, count: int) -> bool:
    return await _equals(conn, "select count(*) from penstock.worker", count)


async def _equals(conn: Connection, query: str, wanted: object) -> bool:
    return bool(await conn.fetchval(query) == wanted)


@pytest.fixture
async def inbox(cluster: Cluster, migrated_template: str) -> AsyncIterator[tuple[str, Connection]]:
    """Another database, with a source for what the outbox sends."""
    with cloned(cluster, migrated_template) as url:
        conn: Connection = await asyncpg.connect(url)
        await conn.execute("create table public.effects (event_id text not null)")
        await conn.execute(
            "select webhook.put_source('upstream', 'standardwebhooks', array['env:HOOK_SECRET'],"
            " '{\"timestamp_signed\": true, \"max_backlog\": 1000000}', 'test')"
        )
        await conn.execute("update penstock.queue_config set lease_s = 1 where queue = 'inbox'")
        yield url, conn
        await conn.close()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


async def _until_under_way(conn: Connection) -> list[str]:
    """Publish until deliveries are on their way, or for ten seconds; returns what was published."""
    ids: list[str] = []
    deadline = monotonic() + 10
    leased = "select leased from app.outbox_stats"
    while monotonic() < deadline and not await conn.fetchval(leased):
        ids += map(str, await publish_many(conn, 5))
        await asyncio.sleep(0.02)
    return ids


async def _handled(conn: Connection, count: int) -> bool:
    found: int = await conn.fetchval("select count(distinct event_id) from public.effects")
    return found >= count


async def test_an_outbox_and_an_inbox_under_kill_9_have_one_effect_for_each_event(
    database_url: str, outbox: SqlOutbox, inbox: tuple[str, Connection], sides: Sides
) -> None:
    seed = int(os.environ.get("PENSTOCK_TEST_SEED") or random.randrange(1_000_000))
    print(f"PENSTOCK_TEST_SEED={seed}")
    chance = random.Random(seed)
    inbox_url, received = inbox
    port = _free_port()
    url = f"http://127.0.0.1:{port}/webhooks/upstream"
    await put(
        outbox.conn,
        "other",
        config={"url": url, "timeout_s": 2},
        secrets=["env:HOOK_SECRET"],
        breaker_pause_s=0.2,
    )
    app = {"PENSTOCK_DATABASE_URL": inbox_url, "PENSTOCK_APP": "shop:ps"}
    sides.start("send", "work", "--only", "outbox", PENSTOCK_DATABASE_URL=database_url)
    sides.start("receive", "serve", "--port", str(port), **app)
    sides.start("handle", "work", "--only", "inbox", **app)
    ids: list[str] = []
    kills: Counter[str] = Counter()
    started = monotonic()
    at = monotonic() + chance.uniform(1.0, 2.0)
    turn: list[str] = []
    while monotonic() - started < CHAOS_S or len(kills) < 3:
        ids += map(str, await publish_many(outbox.conn, chance.randrange(1, 10)))
        await asyncio.sleep(chance.uniform(0.0, 0.04))
        if monotonic() > at:
            turn = turn or chance.sample(["send", "receive", "handle"], 3)
            victim = turn.pop()
            ids += await _until_under_way(outbox.conn)
            assert sides.kill(victim) == -signal.SIGKILL, sides.programs[victim].output
            kills[victim] += 1
            sides.again(victim)
            at = monotonic() + chance.uniform(0.3, 2.5)
    await until(lambda: _empty(outbox.conn), f"all are sent (seed {seed})", within_s=60)
    await until(lambda: _handled(received, len(ids)), f"all are handled ({seed})", within_s=60)
    effects = Counter(
        row["event_id"] for row in await received.fetch("select event_id from public.effects")
    )
    report = json.dumps({"seed": seed, "events": len(ids), "kills": kills})
    assert effects.keys() == set(ids), f"none missing, none invented: {report}"
    assert set(effects.values()) == {1}, f"none doubled: {report}"
    zombies: int = await outbox.conn.fetchval(
        "select count(*) from public.outbox_attempts where outcome = 'ZOMBIE'"
    )
    assert zombies > 0, f"no kill met a delivery under way: {report}"
    print(report)
