"""create_position, raise_watermark, begin_sweep, end_sweep: the rules one by one."""

import asyncpg
import pytest
from tests.support.interleave import Session, Stage

MARKS = """
select pg_sequence_last_value(watermark) as watermark, pg_sequence_last_value(floor) as floor,
       pg_sequence_last_value(settled) as settled, pg_sequence_last_value(mark_pos) as mark
from penstock.position where name = 'p'
"""
DUE = "select setval('penstock.p_swept', 0), setval('penstock.p_at', 0)"
BEGIN = "select lo, hi from penstock.begin_sweep('p')"


async def _position(conn: "asyncpg.Connection[asyncpg.Record]") -> None:
    await conn.execute("select penstock.create_position('p')")


async def _marks(conn: "asyncpg.Connection[asyncpg.Record]") -> dict[str, int]:
    row = await conn.fetchrow(MARKS)
    assert row is not None
    return dict(row)


@pytest.mark.parametrize("name", ["", "P", "1a", "a-b", 'a"; drop', "a" * 42])
async def test_a_position_has_a_plain_name(
    conn: "asyncpg.Connection[asyncpg.Record]", name: str
) -> None:
    with pytest.raises(asyncpg.PostgresError) as refused:
        await conn.execute("select penstock.create_position($1)", name)
    assert refused.value.sqlstate == "PN005"


async def test_creating_a_position_again_changes_nothing(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    await _position(conn)
    await conn.execute("select setval('penstock.p_wm', 7)")
    await _position(conn)
    assert (await _marks(conn))["watermark"] == 7


async def test_the_watermark_rises_to_below_the_lowest_ready_row_and_never_falls(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    await _position(conn)
    await conn.execute("select setval('penstock.p_next', 20)")
    for lowest, expected in ((5, 4), (3, 4), (10, 9), (None, 20), (15, 20)):
        await conn.execute("select penstock.raise_watermark('p', $1)", lowest)
        assert (await _marks(conn))["watermark"] == expected


async def test_a_sweep_is_given_to_one_at_a_time_and_not_too_often(
    database_url: str, conn: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    await _position(conn)
    async with Stage(database_url) as stage:
        ann, bob = await stage.sessions("ann", "bob")
        await ann.begin()
        assert len(await ann.run(BEGIN)) == 1
        await bob.run(DUE)
        assert await bob.run(BEGIN) == [], "ann is still at it"
        await ann.commit()
        assert len(await bob.run(BEGIN)) == 1
        assert await ann.run(BEGIN) == [], "bob has just swept"
        await ann.run(DUE)
        await ann.begin("repeatable read")
        assert await ann.run(BEGIN) == [], "an old snapshot cannot tell who is open"


async def test_a_clock_set_back_does_not_stop_the_sweeps(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    await _position(conn)
    future = "select setval('penstock.p_swept', (extract(epoch from now()) * 1000)::bigint + $1)"
    await conn.execute(future, 3_600_000)
    assert len(await conn.fetch(BEGIN)) == 1
    net = "select setval('penstock.p_net', (extract(epoch from now()) * 1000)::bigint + $1)"
    await conn.execute(net, 3_600_000)
    assert await conn.fetchval("select penstock.net_due('p')")


async def _sweep(session: Session, *, aged: bool = True) -> None:
    await session.run("select setval('penstock.p_swept', 0)")
    if aged:
        await session.run("select setval('penstock.p_at', 0)")
    await session.run(BEGIN)
    await session.run("select penstock.end_sweep('p', null)")


async def test_a_mark_settles_only_when_all_that_were_open_have_ended(
    database_url: str, conn: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    await _position(conn)
    async with Stage(database_url) as stage:
        writer, reader, sweeper = await stage.sessions("writer", "reader", "sweeper")
        for _ in range(2):
            await _sweep(sweeper)
        await conn.execute("select setval('penstock.p_wm', 10), setval('penstock.p_mark', 10)")
        await reader.begin("repeatable read")
        await reader.run("select count(*) from public.outbox")
        await writer.begin()
        await writer.run("select pg_current_xact_id()")
        settled = []
        for step in range(5):
            if step == 4:
                await writer.commit()
            await _sweep(sweeper)
            settled.append((await _marks(conn))["settled"])
        # A reader does not hold the mark; the writer does.
        assert settled == [0, 0, 0, 0, 10]
        assert (await _marks(conn))["floor"] == 10


async def test_who_is_open_is_asked_only_of_a_mark_two_sweeps_old(
    database_url: str, conn: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    """Until then somebody may hold a position below it and have no transaction id yet."""
    await _position(conn)
    xid = "select last_value from penstock.p_xid"
    async with Stage(database_url) as stage:
        sweeper = await stage.session("sweeper")
        for _ in range(2):
            await _sweep(sweeper)
        assert await conn.fetchval(xid) == 0, "a new mark"
        for _ in range(3):
            await _sweep(sweeper, aged=False)
        assert await conn.fetchval(xid) == 0
        await _sweep(sweeper)
        assert await conn.fetchval(xid) > 0


@pytest.mark.parametrize(
    ("broken", "mended"),
    [
        ("p_xid minvalue 1 start 1", "p_xid minvalue 0 start 0"),
        ("p_at maxvalue 1", "p_at no maxvalue"),
        ("p_mark maxvalue 5", "p_mark no maxvalue"),
    ],
)
async def test_a_sweep_that_stops_half_way_does_not_settle_its_mark_early(
    database_url: str, conn: "asyncpg.Connection[asyncpg.Record]", broken: str, mended: str
) -> None:
    """Sequences keep what was set before the stop: each of the three may be the last one set."""
    await _position(conn)
    async with Stage(database_url) as stage:
        writer, sweeper = await stage.sessions("writer", "sweeper")
        for _ in range(3):
            await _sweep(sweeper)
        assert await conn.fetchval("select last_value from penstock.p_xid") > 0
        await writer.begin()
        await writer.run("select pg_current_xact_id()")
        await conn.execute("select setval('penstock.p_wm', 10), setval('penstock.p_at', 0)")
        await conn.execute(f"alter sequence penstock.{broken}")
        with pytest.raises(asyncpg.PostgresError):
            await _sweep(sweeper)
        await conn.execute(f"alter sequence penstock.{mended}")
        for _ in range(3):
            await _sweep(sweeper)
            assert (await _marks(conn))["settled"] == 0, "the writer may have a position below 10"
        await writer.commit()
        for _ in range(4):
            await _sweep(sweeper)
        assert (await _marks(conn))["settled"] == 10


async def test_the_floor_stays_below_a_row_that_is_left(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    await _position(conn)
    await conn.execute("select setval('penstock.p_settled', 10)")
    for lowest, expected in ((4, 3), (2, 3), (50, 10), (None, 10)):
        await conn.execute("select penstock.end_sweep('p', $1)", lowest)
        assert (await _marks(conn))["floor"] == expected
