"""Engine and ledger of the test's own, the bridge between them, and a fake receiver."""

from collections.abc import AsyncIterator, Callable, Iterator

import asyncpg
import pytest
from tests.support.bridge import Receiver, Sale, receiving
from tests.support.database import cloned
from tests.support.intake import Connection, SqlIntake
from tests.support.ledger import ledger_template as make_ledger_template

from penstock.intake.bridge import Bridge
from penstock.kernel.database import Database
from penstock.kernel.events import Events, Observation
from penstock.kernel.settings import Settings, with_values
from penstock.postgres import Cluster

MakeBridge = Callable[..., Bridge]


@pytest.fixture(scope="session")
def bridge_ledger_template(cluster: Cluster) -> str:
    return make_ledger_template(cluster)


@pytest.fixture
def ledger_url(cluster: Cluster, bridge_ledger_template: str) -> Iterator[str]:
    with cloned(cluster, bridge_ledger_template) as url:
        yield url


@pytest.fixture
async def ledger(ledger_url: str) -> AsyncIterator[Connection]:
    connection: Connection = await asyncpg.connect(ledger_url)
    yield connection
    await connection.close()


@pytest.fixture
def sale(conn: Connection, ledger: Connection) -> Sale:
    return Sale(SqlIntake(conn), ledger)


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as served:
        yield served


@pytest.fixture
def seen() -> list[Observation]:
    return []


@pytest.fixture
def settings() -> Settings:
    return with_values(Settings(), http_allow_private=("127.0.0.0/8",), http_timeout_s=2.0)


@pytest.fixture
async def make_bridge(
    database_url: str, ledger_url: str, settings: Settings, seen: list[Observation]
) -> AsyncIterator[MakeBridge]:
    made: list[tuple[Bridge, Database, Database | None]] = []

    def make(*, engine: Database, ledger: bool = True, other_ledger: str | None = None) -> Bridge:
        events = Events()
        events.subscribe(seen.append)
        second = Database(other_ledger or ledger_url, size=4) if ledger else None
        bridge = Bridge(engine, second, events=events, settings=settings)
        made.append((bridge, engine, second))
        return bridge

    yield make
    for bridge, _, second in made:
        await bridge.close()
        if second is not None:
            await second.close()


@pytest.fixture
async def engine(database_url: str) -> AsyncIterator[Database]:
    database = Database(database_url, size=6)
    await database.open()
    yield database
    await database.close()


@pytest.fixture
def bridge(make_bridge: MakeBridge, engine: Database) -> Bridge:
    return make_bridge(engine=engine)
