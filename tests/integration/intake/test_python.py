"""`ps.intake` in Python: reserve, ask, and work in the same process."""

from uuid import uuid4

import pytest
from tests.support.bridge import POOL, Sale

from penstock import (
    LimitReached,
    NotOpen,
    NotOpened,
    Penstock,
    PenstockError,
    Reserved,
    SoldOut,
)


async def test_a_reservation_is_made_repeated_confirmed_and_looked_up(
    database_url: str, ledger_url: str, sale: Sale
) -> None:
    await sale.open(2, max_per_user=1)
    async with Penstock(database_url, ledger=ledger_url) as ps:
        made = await ps.intake.reserve(POOL, user="alice", request_id="r-1")
        assert isinstance(made, Reserved)
        again = await ps.intake.reserve(POOL, user="alice", request_id="r-1")
        assert again == Reserved(made.resource_id, made.reservation_id, again=True)
        limited = await ps.intake.reserve(POOL, user="alice", request_id="r-2")
        assert isinstance(limited, LimitReached)
        await ps.intake.reserve(POOL, user="bob", request_id="r-1")
        late = await ps.intake.reserve(POOL, user="eve", request_id="r-1")
        assert isinstance(late, SoldOut)
        assert (await ps.intake.status(made.reservation_id)).state == "RESERVED"
        report = await ps.run_once("intake")
        assert report.finished == 2
        assert (await ps.intake.status(made.reservation_id)).state == "CONFIRMED"
        await sale.engine.configure(is_active=False)
        closed = await ps.intake.reserve(POOL, user="eve", request_id="r-2")
        assert isinstance(closed, NotOpen)
        with pytest.raises(PenstockError, match="PN011"):
            await ps.intake.status(uuid4())
    await sale.prove()


@pytest.mark.parametrize("user", ["", "a\0b", "\ud800", "x" * 201])
async def test_an_id_that_cannot_be_stored_is_refused_before_it_reaches_anyone_else(
    database_url: str, sale: Sale, user: str
) -> None:
    await sale.open(1)
    async with Penstock(database_url) as ps:
        with pytest.raises(PenstockError, match="PN706"):
            await ps.intake.reserve(POOL, user=user, request_id="r")


async def test_nothing_works_before_it_is_opened(database_url: str) -> None:
    with pytest.raises(NotOpened):
        await Penstock(database_url).intake.reserve(POOL, user="a", request_id="r")
