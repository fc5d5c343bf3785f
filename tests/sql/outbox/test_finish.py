"""outbox_finish, outbox_finish_strict, outbox_mark_delivered: compare-and-set on the token."""

from datetime import timedelta
from uuid import UUID, uuid4

import asyncpg
import pytest
from tests.support.outbox import Leased, SqlOutbox


async def _late_results(conn: "asyncpg.Connection[asyncpg.Record]") -> list[tuple[UUID, UUID, str]]:
    rows = await conn.fetch(
        "select item_id, lease_token, verdict from penstock.late_results order by id"
    )
    return [(row["item_id"], row["lease_token"], row["verdict"]) for row in rows]


async def _taken_over(outbox: SqlOutbox) -> tuple[Leased, Leased]:
    """One event: claimed, its lease over, claimed by another."""
    await outbox.make_clock_settable()
    await outbox.publish(1)
    (first,) = await outbox.claim()
    await outbox.advance(timedelta(minutes=2))
    await outbox.tend()
    (second,) = await outbox.claim()
    assert first.seq == second.seq
    return first, second


async def test_finishing_moves_the_row_to_the_archive(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    outbox = SqlOutbox(conn)
    ids = await outbox.publish(3)
    assert await outbox.finish(await outbox.claim()) == []
    assert await conn.fetchval("select count(*) from public.outbox") == 0
    rows = await conn.fetch("select id, state from public.outbox_archive order by seq")
    assert [(row["id"], row["state"]) for row in rows] == [(one, "DELIVERED") for one in ids]


async def test_a_stale_finish_changes_nothing_and_is_kept_as_a_late_result(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    outbox = SqlOutbox(conn)
    first, second = await _taken_over(outbox)
    before = await conn.fetchrow("select * from public.outbox")
    assert await outbox.finish([first]) == [first.seq]
    assert await conn.fetchrow("select * from public.outbox") == before
    assert await _late_results(conn) == [(first.id, first.token, "done")]
    assert await outbox.finish([second]) == []


async def test_a_refused_finish_repeated_after_a_lost_answer_is_one_late_result(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    outbox = SqlOutbox(conn)
    first, _ = await _taken_over(outbox)
    for _ in range(2):
        assert await outbox.finish([first]) == [first.seq]
    assert len(await _late_results(conn)) == 1


async def test_a_finish_repeated_after_a_lost_answer_is_not_stale(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    outbox = SqlOutbox(conn)
    await outbox.publish(3)
    items = await outbox.claim()
    assert await outbox.finish(items[:2]) == []
    assert await outbox.finish(items) == []
    assert await _late_results(conn) == []
    assert await conn.fetchval("select count(*) from public.outbox_archive") == 3


async def test_an_expired_lease_that_nobody_took_still_finishes(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    outbox = SqlOutbox(conn)
    await outbox.make_clock_settable()
    await outbox.publish(1)
    items = await outbox.claim()
    await outbox.advance(timedelta(hours=1))
    assert await outbox.finish(items) == []


async def test_a_finish_after_a_release_is_refused(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    outbox = SqlOutbox(conn)
    (event,) = await outbox.publish(1)
    items = await outbox.claim()
    assert await outbox.release(items) == 1
    assert await outbox.finish(items) == [items[0].seq]
    assert await _late_results(conn) == [(event, items[0].token, "done")]
    assert await outbox.state(event) == "READY"


@pytest.mark.parametrize("tokens", [[None], []])
async def test_no_token_finishes_nothing(
    conn: "asyncpg.Connection[asyncpg.Record]", tokens: list[UUID | None]
) -> None:
    outbox = SqlOutbox(conn)
    (event,) = await outbox.publish(1)
    seq = await conn.fetchval("select seq from public.outbox")
    with pytest.raises(asyncpg.PostgresError) as refused:
        await conn.fetch("select * from app.outbox_finish($1, $2, $3)", [seq], [event], tokens)
    assert refused.value.sqlstate == "PN201"
    with pytest.raises(asyncpg.PostgresError) as refused:
        await conn.fetch("select app.outbox_finish_strict($1, $2)", [seq], tokens)
    assert refused.value.sqlstate == "PN201"
    assert await outbox.state(event) == "READY"


async def test_a_strict_finish_shares_the_users_transaction(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    outbox = SqlOutbox(conn)
    await conn.execute("create table effects (event uuid)")
    first, second = await _taken_over(outbox)

    async def effect_and_finish(item: Leased) -> None:
        async with conn.transaction():
            await conn.execute("insert into effects values ($1)", item.id)
            await conn.execute(
                "select app.outbox_finish_strict(array[$1::bigint], array[$2::uuid])",
                item.seq,
                item.token,
            )

    with pytest.raises(asyncpg.PostgresError) as refused:
        await effect_and_finish(first)
    assert refused.value.sqlstate == "PN204"
    assert await conn.fetchval("select count(*) from effects") == 0
    await effect_and_finish(second)
    assert await conn.fetchval("select count(*) from effects") == 1
    assert await outbox.state(second.id) == "DELIVERED"


async def test_mark_delivered_counts_what_this_token_really_finished(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    outbox = SqlOutbox(conn)
    ids = await outbox.publish(5)
    mine = await outbox.claim(3)
    theirs = await outbox.claim(2)
    mark = "select app.outbox_mark_delivered($1, $2)"
    assert await conn.fetchval(mark, mine[0].token, ids) == 3
    assert await conn.fetchval(mark, mine[0].token, ids) == 0
    assert await conn.fetchval(mark, theirs[0].token, ids) == 2
    assert await conn.fetchval("select count(*) from public.outbox_archive") == 5
    assert await _late_results(conn) == []


async def test_mark_delivered_by_a_lost_lease_is_kept_as_a_late_result(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    outbox = SqlOutbox(conn)
    first, second = await _taken_over(outbox)
    mark = "select app.outbox_mark_delivered($1, array[$2::uuid])"
    assert await conn.fetchval(mark, first.token, first.id) == 0
    assert await conn.fetchval(mark, uuid4(), first.id) == 0
    assert await _late_results(conn) == [(first.id, first.token, "done")]
    assert await conn.fetchval(mark, second.token, second.id) == 1
