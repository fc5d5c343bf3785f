"""A ledger database of the test's own."""

from collections.abc import AsyncIterator, Iterator

import asyncpg
import pytest
from tests.support.database import cloned
from tests.support.ledger import ledger_template as make_ledger_template

from penstock.postgres import Cluster


@pytest.fixture(scope="session")
def ledger_template(cluster: Cluster) -> str:
    """The name of a database with the ledger, for cloning."""
    return make_ledger_template(cluster)


@pytest.fixture
def ledger_url(cluster: Cluster, ledger_template: str) -> Iterator[str]:
    """A ledger of the test's own, as superuser."""
    with cloned(cluster, ledger_template) as url:
        yield url


@pytest.fixture
async def ledger(ledger_url: str) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    """A connection to the test's own ledger, as superuser."""
    connection: asyncpg.Connection[asyncpg.Record] = await asyncpg.connect(ledger_url)
    yield connection
    await connection.close()
