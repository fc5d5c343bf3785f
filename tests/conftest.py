"""Fixtures for every test: a cluster per test process, a migrated template, a clone per test."""

import gc
from collections.abc import AsyncIterator, Iterator

import asyncpg
import pytest
from tests.support.database import (
    administered,
    cloned,
    empty_database,
    make_template,
    own_cluster,
    server_binaries,
)

from penstock.postgres import Cluster


def pytest_report_header() -> str:
    """Name the server under test."""
    binaries = server_binaries()
    return f"postgres: {binaries.version} ({binaries.origin}, {binaries.bin_dir.name})"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long tests first: one that begins last runs on while the other processes have nothing."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def pytest_collection_finish() -> None:
    """Thousands of tests stay until the end: collecting garbage need not look at them each time."""
    gc.freeze()


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A running server of this test process; not durable, because nobody pulls its plug."""
    with own_cluster() as running, administered(running):
        yield running


@pytest.fixture(scope="session")
def migrated_template(cluster: Cluster) -> str:
    """The name of a database with all products of the engine, for cloning."""
    return make_template(cluster)


@pytest.fixture
def database_url(cluster: Cluster, migrated_template: str) -> Iterator[str]:
    """A migrated database of the test's own, as superuser."""
    with cloned(cluster, migrated_template) as url:
        yield url


@pytest.fixture
def empty_url(cluster: Cluster) -> Iterator[str]:
    """An empty database of the test's own, as superuser."""
    with empty_database(cluster) as url:
        yield url


@pytest.fixture
async def conn(database_url: str) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    """A connection to the test's own migrated database, as superuser."""
    connection: asyncpg.Connection[asyncpg.Record] = await asyncpg.connect(database_url)
    yield connection
    await connection.close()
