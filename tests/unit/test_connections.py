"""Our SQL on the user's connection: every driver, against a real database."""

from collections.abc import Callable

import pytest
from tests.support.drivers import (
    ASYNC,
    SYNC,
    Opened,
    OpenedSync,
    with_asyncpg,
    with_psycopg,
    with_psycopg_sync,
)

from penstock import LeaseLost, NotInTransaction, Tx
from penstock.kernel.connections import (
    adapt,
    adapt_sync,
    require_transaction,
    require_transaction_sync,
    to_format,
    to_pyformat,
)
from penstock.kernel.database import call
from penstock.kernel.errors import WrongUsage

QUERY = "select $1::text as a, $2::text[] as b, $1::text || '%' as c"
STALE = """select app.outbox_finish_strict(array[1::bigint],
           array['00000000-0000-0000-0000-000000000001'::uuid])::text"""


@pytest.mark.parametrize("opened", ASYNC.values(), ids=ASYNC.keys())
async def test_parameters_and_rows_are_the_same_on_every_async_driver(
    database_url: str, opened: Callable[[str, bool], Opened]
) -> None:
    async with opened(database_url, False) as conn:
        (row,) = await call(adapt(conn), QUERY, "100%", ["x", "y"])
    assert dict(row) == {"a": "100%", "b": ["x", "y"], "c": "100%%"}


@pytest.mark.parametrize("opened", SYNC.values(), ids=SYNC.keys())
def test_parameters_and_rows_are_the_same_on_every_blocking_driver(
    database_url: str, opened: Callable[[str, bool], OpenedSync]
) -> None:
    with opened(database_url, False) as conn:
        (row,) = adapt_sync(conn).fetch(QUERY, "100%", ["x", "y"])
    assert dict(row) == {"a": "100%", "b": ["x", "y"], "c": "100%%"}


@pytest.mark.parametrize("opened", ASYNC.values(), ids=ASYNC.keys())
async def test_every_async_driver_can_tell_that_no_transaction_is_open(
    database_url: str, opened: Callable[[str, bool], Opened]
) -> None:
    async with opened(database_url, True) as conn:
        with pytest.raises(NotInTransaction):
            await require_transaction(adapt(conn))
        await require_transaction(adapt(conn), autocommit_ok=True)
    async with opened(database_url, False) as conn:
        await require_transaction(adapt(conn))


@pytest.mark.parametrize("opened", SYNC.values(), ids=SYNC.keys())
def test_every_blocking_driver_can_tell_that_no_transaction_is_open(
    database_url: str, opened: Callable[[str, bool], OpenedSync]
) -> None:
    with opened(database_url, True) as conn:
        with pytest.raises(NotInTransaction):
            require_transaction_sync(adapt_sync(conn))
        require_transaction_sync(adapt_sync(conn), autocommit_ok=True)
    with opened(database_url, False) as conn:
        require_transaction_sync(adapt_sync(conn))


async def test_psycopg_in_autocommit_with_an_open_block_is_in_a_transaction(
    database_url: str,
) -> None:
    async with with_psycopg(database_url, True) as conn, conn.transaction():
        await require_transaction(adapt(conn))


@pytest.mark.parametrize("opened", ASYNC.values(), ids=ASYNC.keys())
async def test_our_errors_arrive_as_ours_through_every_async_driver(
    database_url: str, opened: Callable[[str, bool], Opened]
) -> None:
    with pytest.raises(LeaseLost) as caught:
        async with opened(database_url, False) as conn:
            await call(adapt(conn), STALE)
    assert caught.value.what.startswith("1 of 1 events")
    assert "attempt.extend()" in caught.value.todo


@pytest.mark.parametrize("opened", SYNC.values(), ids=SYNC.keys())
def test_our_errors_arrive_as_ours_through_every_blocking_driver(
    database_url: str, opened: Callable[[str, bool], OpenedSync]
) -> None:
    with pytest.raises(LeaseLost) as caught, opened(database_url, False) as conn:
        adapt_sync(conn).fetch(STALE)
    assert caught.value.what.startswith("1 of 1 events")
    assert "attempt.extend()" in caught.value.todo


@pytest.mark.parametrize("opened", ASYNC.values(), ids=ASYNC.keys())
async def test_errors_that_are_not_ours_stay_the_drivers(
    database_url: str, opened: Callable[[str, bool], Opened]
) -> None:
    with pytest.raises(Exception, match="division by zero") as caught:
        async with opened(database_url, False) as conn:
            await call(adapt(conn), "select 1 / 0")
    assert not type(caught.value).__module__.startswith("penstock")


async def test_a_connection_of_the_wrong_kind_is_told_apart(database_url: str) -> None:
    async with with_asyncpg(database_url, False) as conn:
        with pytest.raises(WrongUsage, match="async connection"):
            adapt_sync(Tx(conn))
    with with_psycopg_sync(database_url, False) as blocking:
        with pytest.raises(WrongUsage) as caught:
            adapt(blocking)
        assert "publish_sync" in caught.value.todo
    for nonsense in (None, "postgres://", 3):
        with pytest.raises(WrongUsage):
            adapt(nonsense)
        with pytest.raises(WrongUsage):
            adapt_sync(nonsense)


def test_statements_are_rewritten_for_other_styles() -> None:
    assert to_pyformat("select $1, $10 % $1") == "select %(p1)s, %(p10)s %% %(p1)s"
    assert to_format("select $1::text, '%'") == "select %s::text, '%%'"
