"""Two servers of the run's own, migrated, with a login for each process; gone afterwards.

A configured database is never touched: nothing here reads one.
"""

import asyncio
import os
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

import asyncpg

from penstock.kernel.schema import ENGINE, LEDGER, migrate, select_products
from penstock.postgres import Cluster, named_cluster, throwaway_cluster
from penstock.postgres.address import Address

ENGINE_DB = "engine"
LEDGER_DB = "ledger"
NAIVE_DB = "naive"
LOGINS = 8
CUT_S = 10.0
_SETTINGS = {
    "shared_buffers": "64MB",
    "max_connections": "120",
    "log_min_messages": "fatal",
    "max_wal_size": "2GB",
    # A start after a crash syncs every file; one call for the file system is quicker.
    **({"recovery_init_sync_method": "syncfs"} if sys.platform == "linux" else {}),
}
_ENGINE_RIGHTS = (
    "grant penstock_intake_ingest, penstock_intake_executor, penstock_operator to {login}"
)
_LEDGER_RIGHTS = "grant penstock_ledger_writer, penstock_auditor to {login}"

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Stage:
    """The two clusters and a directory for logs.

    Addresses are kept: a server that is down has none, and comes back where it was.
    """

    engine: Cluster
    ledger: Cluster
    directory: Path
    engine_address: Address
    ledger_address: Address
    secret: str = field(default_factory=lambda: secrets.token_urlsafe(48))
    service_key: str = field(default_factory=lambda: secrets.token_urlsafe(32))

    def engine_url(self, login: str = "postgres", database: str = ENGINE_DB) -> str:
        """The address of the engine's database."""
        return self.engine_address.url(database, login)

    def ledger_url(self, login: str = "postgres", database: str = LEDGER_DB) -> str:
        """The address of the ledger's database."""
        return self.ledger_address.url(database, login)

    def psql_lines(self) -> list[str]:
        """Lines that let a viewer look into both databases."""
        places = ((self.engine_address, ENGINE_DB), (self.ledger_address, LEDGER_DB))
        return [
            f'psql "host={address.socket_dir} user=postgres dbname={database}"'
            for address, database in places
        ]


def login_of(number: int) -> str:
    """The login of one process; a server's activity shows who does what."""
    return f"demo_{number}"


@contextmanager
def set_up(*, keep: bool, progress: Progress) -> Iterator[Stage]:
    """Start and migrate both servers at once; without `keep` everything goes at the end."""
    with ExitStack() as stack:
        directory = Path(tempfile.mkdtemp(prefix="penstock-demo-"))
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        progress("two Postgres servers: starting, then the schema")
        with ThreadPoolExecutor(2) as threads:
            making = [
                threads.submit(_cluster, name, keep=keep, stack=stack)
                for name in (ENGINE_DB, LEDGER_DB)
            ]
            engine, ledger = (one.result() for one in making)
        try:
            yield Stage(engine, ledger, directory, engine.address, ledger.address)
        finally:
            if not keep:
                _cut(engine, ledger)


def _cut(*clusters: Cluster) -> None:
    """Stop servers whose data goes anyway: at once, without a checkpoint."""
    pids = [pid for cluster in clusters if (pid := cluster.pid) is not None]
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGQUIT)
    deadline = time.monotonic() + CUT_S
    while any(cluster.is_running() for cluster in clusters) and time.monotonic() < deadline:
        time.sleep(0.02)


def _cluster(name: str, *, keep: bool, stack: ExitStack) -> Cluster:
    if keep:
        cluster = named_cluster(f"demo-{os.getpid()}-{name}", settings=_SETTINGS).start()
    else:
        made = throwaway_cluster(name=name, durable=True, settings=_SETTINGS)
        cluster = stack.enter_context(made)
    prepare = _prepare_engine if name == ENGINE_DB else _prepare_ledger
    asyncio.run(prepare(cluster))
    return cluster


async def _prepare_engine(cluster: Cluster) -> None:
    await _execute(cluster.url(), f"create database {ENGINE_DB}")
    await migrate(cluster.url(ENGINE_DB), products=select_products(ENGINE))
    await _logins(cluster, ENGINE_DB, _ENGINE_RIGHTS)
    # The control run needs the same pgmq, and nothing else of ours.
    await _execute(cluster.url(), f"create database {NAIVE_DB} template {ENGINE_DB}")
    await _execute(cluster.url(NAIVE_DB), sql("naive_engine.sql"))


async def _prepare_ledger(cluster: Cluster) -> None:
    await _execute(cluster.url(), f"create database {LEDGER_DB}")
    await _execute(cluster.url(), f"create database {NAIVE_DB}")
    await migrate(cluster.url(LEDGER_DB), products=select_products(LEDGER))
    await _logins(cluster, LEDGER_DB, _LEDGER_RIGHTS)
    await _execute(cluster.url(NAIVE_DB), sql("naive_ledger.sql"))


async def _logins(cluster: Cluster, database: str, rights: str) -> None:
    statements = [
        f"create role {login_of(number)} login; " + rights.format(login=login_of(number))
        for number in range(LOGINS)
    ]
    await _execute(cluster.url(database), ";".join(statements))


async def _execute(url: str, statements: str) -> None:
    conn = await asyncpg.connect(url)
    try:
        await conn.execute(statements)
    finally:
        await conn.close()


def sql(name: str) -> str:
    """The text of an SQL file of the demo."""
    return files("penstock.demo").joinpath("sql", name).read_text("utf-8")
