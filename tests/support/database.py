"""Throwaway clusters and databases for tests: one cluster per test process, one clone per test.

A test that asks for `database_url` or `conn` gets its own copy of a migrated database, so tests run
in any order and side by side. Roles are shared by the cluster; tests that change roles take a
cluster of their own with `own_cluster()`.
"""

import asyncio
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import psycopg
from psycopg import sql

from penstock.kernel.schema import migrate, select_products
from penstock.postgres import Binaries, Cluster, find_binaries, throwaway_cluster
from penstock.postgres.binaries import examine

T = TypeVar("T")

BIN_VARIABLE = "PENSTOCK_TEST_POSTGRES"
TEMPLATE = "penstock_template"
_SETTINGS = {
    "max_connections": "150",
    "shared_buffers": "64MB",
    "autovacuum": "off",  # tests that need statistics or cleaning say so
    "max_wal_size": "4GB",
    "checkpoint_timeout": "1h",
    "log_min_messages": "panic",
}
_MEMORY = Path("/dev/shm")
_MEMORY_BYTES_MIN = 2 * 1024**3
_CATALOG_TABLES = """
select relname from pg_class
where relnamespace = 'pg_catalog'::regnamespace and relkind = 'r' and not relisshared
"""
_numbers = count(1)
_kept: "dict[str, psycopg.Connection[tuple[Any, ...]]]" = {}


def server_binaries() -> Binaries:
    """The server programs under test: PENSTOCK_TEST_POSTGRES, else the preferred ones."""
    wanted = os.environ.get(BIN_VARIABLE)
    if not wanted:
        return find_binaries()
    found = examine(Path(wanted), BIN_VARIABLE)
    assert found is not None, f"{BIN_VARIABLE}={wanted} holds no working server"
    return found


@contextmanager
def own_cluster(binaries: Binaries | None = None) -> Iterator[Cluster]:
    """A cluster for one test that changes roles, stops the server or compares versions."""
    making = throwaway_cluster(binaries=binaries or server_binaries(), settings=_SETTINGS)
    with ExitStack() as stack:
        with _in_memory():
            cluster = stack.enter_context(making)
        yield cluster


@contextmanager
def _in_memory() -> Iterator[None]:
    """Make temporary directories in memory where there is plenty: a clone takes 40 ms, not 800."""
    before = tempfile.tempdir
    if _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > _MEMORY_BYTES_MIN:
        tempfile.tempdir = str(_MEMORY)
    try:
        yield
    finally:
        tempfile.tempdir = before


def run_apart(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine on a loop of its own, from code that may or may not have one running."""
    results: list[T] = []
    errors: list[BaseException] = []

    def body() -> None:
        try:
            results.append(asyncio.run(work()))
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def administer(cluster: Cluster, statement: str, **names: str) -> None:
    """Run one statement on the maintenance database; `{name}` stands for a quoted identifier."""
    identifiers = {key: sql.Identifier(name) for key, name in names.items()}
    whole = sql.SQL(statement).format(**identifiers)
    kept = _kept.get(cluster.url())
    if kept and not kept.closed:
        kept.execute(whole)
        return
    with psycopg.connect(cluster.url(), autocommit=True) as conn:
        conn.execute(whole)


@contextmanager
def administered(cluster: Cluster) -> Iterator[Cluster]:
    """Keep a connection for `administer`: each test needs it twice, and to connect takes as long
    as a tenth of a clone.
    """
    with psycopg.connect(cluster.url(), autocommit=True) as conn:
        _kept[cluster.url()] = conn
        try:
            yield cluster
        finally:
            del _kept[cluster.url()]


def make_template(cluster: Cluster, name: str = TEMPLATE) -> str:
    """Create a database, migrate it with all products of the engine, and close it to visitors."""
    administer(cluster, "create database {name}", name=name)
    run_apart(lambda: migrate(cluster.url(name), products=select_products()))
    compact(cluster, name)
    administer(cluster, "alter database {name} is_template true allow_connections false", name=name)
    return name


def compact(cluster: Cluster, name: str) -> None:
    """Take out what migrating left behind: every clone copies each file and all that is in it.

    Only of the system's own tables: the others would then count as known to be empty, and the
    planner would think otherwise of them than on the day they are installed.
    """
    with psycopg.connect(cluster.url(name), autocommit=True) as conn:
        for (table,) in conn.execute(_CATALOG_TABLES).fetchall():
            conn.execute(sql.SQL("vacuum full {}").format(sql.Identifier("pg_catalog", table)))
    with psycopg.connect(cluster.url(name)):
        pass  # the first visitor writes a cache of the system's tables, which the clones share


@contextmanager
def cloned(cluster: Cluster, template: str = TEMPLATE) -> Iterator[str]:
    """The URL of a fresh copy of a database; the copy is dropped at the end."""
    name = f"test_{os.getpid()}_{next(_numbers)}"
    administer(
        cluster,
        "create database {name} template {template} strategy file_copy",
        name=name,
        template=template,
    )
    try:
        yield cluster.url(name)
    finally:
        administer(cluster, "drop database if exists {name} with (force)", name=name)


@contextmanager
def empty_database(cluster: Cluster, owner: str = "postgres") -> Iterator[str]:
    """The URL of a fresh empty database, as its owner; dropped at the end."""
    name = f"empty_{os.getpid()}_{next(_numbers)}"
    administer(cluster, "create database {name} owner {owner}", name=name, owner=owner)
    try:
        yield cluster.url(name, owner)
    finally:
        administer(cluster, "drop database if exists {name} with (force)", name=name)
