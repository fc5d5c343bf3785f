"""The pytest plugin: fixtures `penstock_url`, `ps` and `conn`.

Nothing is imported before a test asks for a fixture: suites that use none pay nothing.
Say in the ini file which application is under test: `penstock_app = shop.events:ps`.
"""

from collections.abc import AsyncIterator, Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from penstock.application import Penstock


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the one setting."""
    parser.addini("penstock_app", "the application under test, as module:attribute", default="")


@pytest.fixture(scope="session")
def penstock_setup() -> Callable[[str], object] | None:
    """Override it to return a function that creates your tables, given the database's address."""
    return None


@pytest.fixture(scope="session")
def _penstock_cluster(penstock_setup: Callable[[str], object] | None) -> Iterator[Any]:
    databases = import_module("penstock.testing.databases")
    with databases.template_cluster(penstock_setup) as cluster:
        yield cluster


@pytest.fixture
def penstock_url(_penstock_cluster: Any) -> Iterator[str]:
    """The address of a migrated database of this test's own."""
    databases = import_module("penstock.testing.databases")
    with databases.copied(_penstock_cluster) as url:
        yield url


@pytest.fixture
def ps(penstock_url: str, request: pytest.FixtureRequest) -> Iterator["Penstock"]:
    """The application under test on `penstock_url`; a new one where the ini file names none."""
    application = import_module("penstock.application")
    settings = import_module("penstock.kernel.settings")
    target = request.config.getini("penstock_app")
    if not target:
        yield application.Penstock(penstock_url)
        return
    module, _, attribute = target.partition(":")
    found: Penstock = getattr(import_module(module), attribute or "ps")
    before = found.settings
    url = settings.TABLE["database_url"].spec.parse(penstock_url)
    found.use(settings.with_values(before, database_url=url, direct_url=None))
    yield found
    found.use(before)


async def _conn(penstock_url: str) -> AsyncIterator[Any]:
    """An asyncpg connection inside a transaction that is rolled back after the test."""
    connection = await import_module("asyncpg").connect(penstock_url)
    transaction = connection.transaction()
    await transaction.start()
    try:
        yield connection
        await transaction.rollback()
    finally:
        await connection.close()


# In pytest-asyncio's strict mode only its own decorator makes an async fixture.
if find_spec("pytest_asyncio") is not None:
    conn = import_module("pytest_asyncio").fixture(name="conn")(_conn)
else:
    conn = pytest.fixture(name="conn")(_conn)
