"""A reaper that is ended, or loses its client, between a joint lease and the leases of the rows."""

from datetime import timedelta

import asyncpg
import pytest
from tests.support.history import assert_history
from tests.support.interleave import Stage
from tests.support.outbox import Connection, SqlOutbox
from tests.support.waiting import until

# Stops whoever gives the third event a lease of its own, with two done and more to come.
HALF_WAY = """
create function public.half_way() returns trigger language plpgsql as $$
begin
    perform pg_advisory_xact_lock_shared(77);
    return new;
end $$;
create trigger half_way before update on public.outbox
    for each row when (new.seq = {seq} and new.processing_token is not null)
    execute function public.half_way();
"""
SPLITTING = "select pg_advisory_xact_lock(77)"
# Stops it when all have their own leases, which are about to end.
REAPING = "lock table public.outbox_attempts in access exclusive mode"


@pytest.fixture
async def outbox(conn: Connection) -> SqlOutbox:
    outbox = SqlOutbox(conn)
    await outbox.make_clock_settable()
    await outbox.policy(lease_s=30, max_attempts=10)
    return outbox


@pytest.mark.parametrize("place", [SPLITTING, REAPING])
@pytest.mark.parametrize("ended", [True, False], ids=["ended", "cut off"])
async def test_nothing_is_lost_and_nothing_comes_back_twice(
    database_url: str, outbox: SqlOutbox, place: str, ended: bool
) -> None:
    ids = await outbox.publish(5)
    items = await outbox.claim(joint=True)
    await outbox.conn.execute(HALF_WAY.format(seq=items[2].seq))
    await outbox.advance(timedelta(seconds=31))
    async with Stage(database_url) as stage:
        blocker, reaper = await stage.sessions("blocker", "reaper")
        await blocker.begin()
        await blocker.run(place)
        step = reaper.start("select app.outbox_reap(true)")
        await stage.until_blocked(reaper, step)
        if ended:
            await outbox.conn.execute("select pg_terminate_backend($1)", reaper.pid)
        else:
            reaper.conn.terminate()
        with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
            await step.done()
        await blocker.rollback()
    gone = "select not exists (select from pg_stat_activity where pid = $1)"

    async def is_gone() -> bool:
        return bool(await outbox.conn.fetchval(gone, reaper.pid))

    await until(is_gone, "the reaper's server process is gone", within_s=10)
    # Ended, it did nothing; cut off, it did everything, and nobody heard of it.
    expected = "LEASED" if ended else "READY"
    assert [await outbox.state(event) for event in ids] == [expected] * 5
    assert (await outbox.tend(sweep=True))[0] == (5 if ended else 0)
    assert await outbox.conn.fetchval("select count(*) from public.outbox_joint_leases") == 0
    again = await outbox.claim(joint=True)
    assert [(item.id, item.attempts) for item in again] == [(event, 2) for event in ids]
    assert await outbox.finish(items[:1]) == [items[0].seq]
    assert await outbox.finish(again) == []
    zombies = "select count(*) from public.outbox_attempts where outcome = 'ZOMBIE'"
    assert await outbox.conn.fetchval(zombies) == 5
    await assert_history(outbox.conn, ids)
