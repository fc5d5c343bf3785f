"""What `bench intake` measures on: two durable servers, the first design beside ours, one server.

Each part sells from pools of its own, so that none leaves anything for the next to stumble over.
"""

import asyncio
import os
import secrets
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from importlib.resources import files
from itertools import count
from pathlib import Path
from time import monotonic
from typing import TypeAlias

import asyncpg
import jwt

from penstock.application import Penstock
from penstock.bench.load import Load, run_load
from penstock.kernel.errors import PenstockError
from penstock.kernel.schema import LEDGER, migrate, select_products
from penstock.kernel.schema.apply import Target
from penstock.kernel.schema.prerequisites import prerequisites
from penstock.postgres import Cluster

ENGINE_DB = "engine"
LITERAL_DB = "literal"
LEDGER_DB = "ledger"
CLAIM_PATH = "/rest/v1/rpc/claim_resource_and_queue"
BUYERS = 2_000
FILL = 1_000
READY_S = 30.0
TEND_EVERY_S = 1.0
_STOCK_LITERAL = """
insert into public.inventory_slots (pool_id) select $1 from generate_series(1, $2::int)
"""
_FILL = """
select count(*) from public.intake_reserve(
    $1, array(select 'buyer_' || ($3::int + n) from generate_series(1, $2::int) as n))
"""

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


@dataclass(slots=True)
class Sale:
    """Two servers; the engine's holds our database and the first design's."""

    engine: Cluster
    ledger: Cluster
    conn: Connection
    literal: Connection
    secret: str = field(default_factory=lambda: secrets.token_hex(32))
    numbers: "count[int]" = field(default_factory=lambda: count(1))

    @classmethod
    @asynccontextmanager
    async def opened(cls, engine: Cluster, ledger: Cluster) -> "AsyncIterator[Sale]":
        """Bring the schemas; close the connections in the end."""
        for cluster, name in ((engine, ENGINE_DB), (engine, LITERAL_DB), (ledger, LEDGER_DB)):
            await asyncio.to_thread(cluster.create_database, name)
        await migrate(engine.url(ENGINE_DB), only="intake")
        await migrate(ledger.url(LEDGER_DB), products=select_products(LEDGER))
        conn = await asyncpg.connect(engine.url(ENGINE_DB))
        literal = await asyncpg.connect(engine.url(LITERAL_DB))
        try:
            for step in prerequisites(select_products(only="intake")[-1], Target(False, ())):
                await literal.execute(step.sql)
            first_design = files(__package__).joinpath("sql", "literal_claim.sql")
            await literal.execute(first_design.read_text("utf-8"))
            yield cls(engine, ledger, conn, literal)
        finally:
            await conn.close()
            await literal.close()

    def new_pool(self) -> str:
        """A name that no part has used."""
        return f"pool_{next(self.numbers)}"

    async def stocked(self, slots: int) -> str:
        """A new pool of ours; statistics are those of a table that has just been filled."""
        pool = self.new_pool()
        await self.conn.execute("select public.intake_pool_stock($1, $2, 'bench')", pool, slots)
        await self.conn.execute("vacuum analyze public.inventory_slots")
        return pool

    async def stocked_literal(self, slots: int) -> str:
        """A fresh pool of the first design, with an empty queue."""
        pool = self.new_pool()
        await self.literal.execute("truncate public.inventory_slots, pgmq.q_intake_queue")
        await self.literal.execute(_STOCK_LITERAL, pool, slots)
        await self.literal.execute("vacuum analyze public.inventory_slots")
        return pool

    async def cleared(self) -> None:
        """An empty queue, as a sale begins; its slots stay reserved."""
        await self.conn.execute("truncate pgmq.q_intake_queue")

    async def filled(self, reservations: int) -> None:
        """So many reservations that wait for the bridge."""
        pool = await self.stocked(reservations)
        for start in range(0, reservations, FILL):
            size = min(FILL, reservations - start)
            await self.conn.execute(_FILL, pool, size, start)

    async def bridged(self) -> float:
        """Confirmations per second, from the first claim of the bridge until its queue is empty."""
        waiting: int = await self.conn.fetchval("select count(*) from pgmq.q_intake_queue")
        ps = Penstock(self.engine.url(ENGINE_DB), ledger=self.ledger.url(LEDGER_DB))
        async with ps:
            started = monotonic()
            await ps.work(only={"intake"}, until_idle=True)
            seconds = monotonic() - started
        left: int = await self.conn.fetchval("select count(*) from pgmq.q_intake_queue")
        assert left == 0, f"{left} of {waiting} reservations are not confirmed"
        return waiting / seconds

    @asynccontextmanager
    async def tended(self) -> AsyncIterator[None]:
        """The housekeeping that a worker does every second."""
        conn = await asyncpg.connect(self.engine.url(ENGINE_DB))

        async def tend() -> None:
            while True:
                await conn.execute("select * from public.intake_tend()")
                await asyncio.sleep(TEND_EVERY_S)

        tending = asyncio.create_task(tend())
        try:
            yield
        finally:
            tending.cancel()
            with suppress(asyncio.CancelledError):
                await tending
            await conn.close()

    @asynccontextmanager
    async def held_snapshot(self) -> AsyncIterator[None]:
        """A transaction that somebody forgot, on both servers."""
        async with (
            _forgotten(self.engine.url(ENGINE_DB), "select count(*) from public.inventory_slots"),
            _forgotten(self.ledger.url(LEDGER_DB), "select count(*) from public.confirmed_tickets"),
        ):
            yield

    @asynccontextmanager
    async def served(self, *, group_max: int) -> AsyncIterator[int]:
        """A real `penstock serve`; yields its port."""
        port = _free_port()
        environ = {
            **{k: v for k, v in os.environ.items() if not k.startswith("PENSTOCK_")},
            "PENSTOCK_DATABASE_URL": self.engine.url(ENGINE_DB),
            "PENSTOCK_JWT_SECRET": self.secret,
            "PENSTOCK_LOG_LEVEL": "error",
            "PENSTOCK_INTAKE_GROUP_MAX": str(group_max),
        }
        with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "penstock", "serve", "--port", str(port)),
                cwd=Path(folder),
                env=environ,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
            )
            try:
                await _until_open(port, process)
                yield port
            finally:
                with suppress(ProcessLookupError):
                    process.terminate()
                await asyncio.wait_for(process.wait(), READY_S)

    async def crowd(self, port: int, pool: str, *, connections: int, seconds: float) -> Load:
        """Buyers with tokens of their own, each claim with a request id of its own."""
        expires = int(time.time()) + 3600
        people = [f"buyer_{n}" for n in range(BUYERS)]
        heads = {user: _head(self._token(user, expires)) for user in people}

        def make() -> bytes:
            number = next(self.numbers)
            user = people[number % BUYERS]
            body = (
                f'{{"p_pool_id": "{pool}", "p_user_id": "{user}",'
                f' "p_request_id": "click_{number}"}}'
            )
            return b"%scontent-length: %d\r\n\r\n%s" % (heads[user], len(body), body.encode())

        load = await run_load(port, connections, seconds=seconds, make=make)
        assert set(load.statuses) == {200}, f"answers: {dict(load.statuses)}"
        return load

    def _token(self, user: str, expires: int) -> str:
        claims = {"sub": user, "role": "authenticated", "aud": "authenticated", "exp": expires}
        return jwt.encode(claims, self.secret, algorithm="HS256")

    async def left(self, conn: Connection, pool: str) -> int:
        """Free slots of a pool: a rate counts only if it did not run dry."""
        found: int = await conn.fetchval(
            "select count(*) from public.inventory_slots"
            " where pool_id = $1 and status = 'AVAILABLE'",
            pool,
        )
        return found


def _head(token: str) -> bytes:
    """A claim's request as far as it is the same at every click."""
    return (
        f"POST {CLAIM_PATH} HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer {token}\r\n"
        "content-type: application/json\r\n"
    ).encode()


@asynccontextmanager
async def _forgotten(url: str, query: str) -> AsyncIterator[None]:
    conn = await asyncpg.connect(url)
    transaction = conn.transaction(isolation="repeatable_read", readonly=True)
    await transaction.start()
    await conn.fetchval(query)
    try:
        yield
    finally:
        await transaction.rollback()
        await conn.close()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
    return port


async def _until_open(port: int, process: asyncio.subprocess.Process) -> None:
    deadline = monotonic() + READY_S
    while monotonic() < deadline and process.returncode is None:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.05)
        else:
            writer.close()
            return
    raise PenstockError("the server did not start", todo="its messages stand above.")
