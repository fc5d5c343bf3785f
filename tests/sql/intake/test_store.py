"""The typed calls fit the functions that they call."""

import dataclasses
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from tests.support.intake import POOL, Connection, SqlIntake

from penstock.intake import store
from penstock.intake.model import PoolStats, SoldSlot
from penstock.kernel.errors import ReasonRequired


async def test_pools_are_set_stocked_opened_and_closed(intake: SqlIntake) -> None:
    conn = intake.conn
    await store.set_pool(conn, POOL, {"max_per_user": 2, "hold_s": 60}, reason="r", operator="o")
    assert await store.stock_pool(conn, POOL, count=5, reason="r") == 5
    ids = [uuid4(), uuid4()]
    assert await store.stock_pool(conn, POOL, ids=ids, reason="r") == 2
    await store.close_pool(conn, POOL, reason="r")
    opens = datetime.now(UTC) - timedelta(hours=1)
    await store.schedule_pool(conn, POOL, opens_at=opens, closes_at=None, reason="r")
    (found,) = await store.pools(conn)
    assert found == PoolStats(POOL, True, opens, None, 2, 60, 7, 7, 0, 0)
    await store.open_pool(conn, POOL, reason="r")
    assert (await store.pools(conn))[0].opens_at is None
    with pytest.raises(ReasonRequired):
        await store.close_pool(conn, POOL, reason="")


async def test_dead_letters_and_stories(intake: SqlIntake) -> None:
    assert await store.seed_demo(intake.conn, POOL, 3) == 3
    (answer,) = await intake.reserve("u")
    assert answer.reservation_id is not None
    (row,) = await intake.claim()
    dead = await intake.reject(row)
    assert dead is not None
    (shown,) = await store.show_dead(intake.conn, [dead], reason="case")
    assert '"user_id": "u"' in shown["message"]
    found = await store.story(intake.conn, answer.reservation_id)
    assert found is not None
    assert (found["state"], found["payload"]) == ("DEAD", None)
    assert await store.story(intake.conn, uuid4()) is None


async def test_proof_is_read_in_pages(intake: SqlIntake) -> None:
    await intake.stock(3)
    await intake.configure()
    await intake.reserve("a", "b", "c")
    await intake.complete(*await intake.claim())
    first = await store.sold(intake.conn, None, 2)
    second = await store.sold(intake.conn, first[-1].resource_id, 2)
    every = [*first, *second]
    assert sorted(slot.user_id for slot in every) == ["a", "b", "c"]
    assert await store.prove(intake.conn) == []
    arguments = zip(*((s.resource_id, s.user_id, s.reservation_id) for s in every), strict=True)
    resources, users, reservations = (list(column) for column in arguments)
    assert (
        await store.prove_tickets(intake.conn, resources, users=users, reservations=reservations)
        == []
    )
    wrong = await store.prove_tickets(
        intake.conn, resources, users=users[::-1], reservations=reservations
    )
    assert {found.invariant for found in wrong} == {"I1"}


@pytest.mark.parametrize(
    ("record", "function"), [(SoldSlot, "intake_prove_sold"), (PoolStats, "intake_pool_stats")]
)
async def test_records_have_the_columns_of_their_source(
    conn: Connection, record: type[object], function: str
) -> None:
    if function.endswith("stats"):
        rows = await conn.fetch(
            "select attname from pg_attribute where attrelid = $1::text::regclass and attnum > 0 "
            "order by attnum",
            function,
        )
        columns = [row[0] for row in rows]
    else:
        columns = await conn.fetchval(
            "select proargnames[pronargs + 1:] from pg_proc where proname = $1", function
        )
    assert dataclasses.is_dataclass(record)
    assert [field.name for field in dataclasses.fields(record)] == columns
