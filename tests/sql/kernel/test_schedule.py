"""claim_jobs, finish_job, put_job: each job once each time, however many workers ask."""

import asyncio
from datetime import timedelta
from uuid import UUID, uuid4

import asyncpg
from tests.support.outbox import SqlOutbox


async def _clean(conn: "asyncpg.Connection[asyncpg.Record]", *jobs: str) -> None:
    await conn.execute("delete from penstock.schedule")
    for job in jobs:
        await conn.execute("select penstock.put_job($1, 60)", job)


async def _claim(
    conn: "asyncpg.Connection[asyncpg.Record]", *jobs: str, lease_s: int = 30
) -> dict[str, UUID]:
    rows = await conn.fetch("select * from penstock.claim_jobs($1, $2)", list(jobs), lease_s)
    return {row["job"]: row["token"] for row in rows}


async def test_many_claimers_run_each_job_once(
    database_url: str, conn: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    jobs = [f"job_{number}" for number in range(10)]
    await _clean(conn, *jobs)
    pool = await asyncpg.create_pool(database_url, min_size=12, max_size=12)
    async with pool:

        async def ask() -> list[str]:
            async with pool.acquire() as one:
                rows = await one.fetch("select job from penstock.claim_jobs($1, 30)", jobs)
                return [row["job"] for row in rows]

        answers = await asyncio.gather(*(ask() for _ in range(60)))
    assert sorted(job for answer in answers for job in answer) == sorted(jobs)


async def test_a_job_is_due_again_after_its_interval(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    outbox = SqlOutbox(conn)
    await outbox.make_clock_settable()
    await _clean(conn, "j")
    token = (await _claim(conn, "j"))["j"]
    assert await conn.fetchval("select penstock.finish_job('j', $1, null)", token)
    assert await _claim(conn, "j") == {}
    await outbox.advance(timedelta(seconds=61))
    assert set(await _claim(conn, "j")) == {"j"}


async def test_missed_runs_do_not_pile_up(conn: "asyncpg.Connection[asyncpg.Record]") -> None:
    outbox = SqlOutbox(conn)
    await outbox.make_clock_settable()
    await _clean(conn, "j")
    await outbox.advance(timedelta(hours=10))
    token = (await _claim(conn, "j"))["j"]
    await conn.execute("select penstock.finish_job('j', $1, null)", token)
    await outbox.advance(timedelta(seconds=1))
    assert await _claim(conn, "j") == {}, "one run makes up for all that were missed"
    await outbox.advance(timedelta(seconds=60))
    assert set(await _claim(conn, "j")) == {"j"}


async def test_a_dead_worker_keeps_a_job_only_until_its_lease_ends(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    outbox = SqlOutbox(conn)
    await outbox.make_clock_settable()
    await _clean(conn, "j")
    first = (await _claim(conn, "j", lease_s=30))["j"]
    await outbox.advance(timedelta(seconds=29))
    assert await _claim(conn, "j") == {}
    await outbox.advance(timedelta(seconds=2))
    second = (await _claim(conn, "j"))["j"]
    assert not await conn.fetchval("select penstock.finish_job('j', $1, 'late')", first)
    assert await conn.fetchval("select last_error from penstock.schedule") is None
    assert await conn.fetchval("select penstock.finish_job('j', $1, 'boom')", second)
    assert await conn.fetchval("select last_error from penstock.schedule") == "boom"


async def test_a_job_is_claimed_only_by_those_who_know_it_and_only_if_enabled(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    await _clean(conn, "known", "other", "off")
    await conn.execute("update penstock.schedule set enabled = false where job = 'off'")
    assert set(await _claim(conn, "known", "off", "missing")) == {"known"}
    assert not await conn.fetchval("select penstock.finish_job('other', $1, null)", uuid4())


async def test_putting_a_job_again_keeps_the_operators_interval(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    await _clean(conn, "j")
    await conn.execute("update penstock.schedule set every_s = 5")
    await conn.execute("select penstock.put_job('j', 60)")
    assert await conn.fetchval("select every_s from penstock.schedule") == 5
