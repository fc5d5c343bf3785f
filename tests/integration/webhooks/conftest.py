"""Every scheme as a source, on a real server."""

from collections.abc import AsyncIterator

import pytest
from tests.support.providers import CASES
from tests.support.webhooks import Connection, Door, add_source, open_door, variable

from penstock.application import Penstock


@pytest.fixture
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """The secrets, where the references say they are."""
    for case in CASES.values():
        monkeypatch.setenv(variable(case.name), case.secret)


@pytest.fixture
async def door(database_url: str, conn: Connection, secrets: None) -> AsyncIterator[Door]:
    """A server with every source."""
    for case in CASES.values():
        await add_source(conn, case)
    async with open_door(Penstock(database_url), conn) as opened:
        yield opened
