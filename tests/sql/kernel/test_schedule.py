"""claim_jobs, finish_job, put_job: each job once each time, however many workers ask."""

import asyncio
from datetime import timedelta
from uuid import UUID, uuid4

import asyncpg
import pytest
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


@pytest.mark.parametrize(("asked_s", "given_s"), [(-5, 1), (0, 1), (120, 120), (10**9, 3600)])
async def test_a_lease_lasts_a_second_at_least_and_an_hour_at_most(
    conn: "asyncpg.Connection[asyncpg.Record]", asked_s: int, given_s: int
) -> None:
    await _clean(conn, "j")
    assert set(await _claim(conn, "j", lease_s=asked_s)) == {"j"}
    lasts = await conn.fetchval("select lease_expires_at - last_started_at from penstock.schedule")
    assert abs(lasts.total_seconds() - given_s) < 0.5


async def _claim_as(conn: "asyncpg.Connection[asyncpg.Record]", role: str, *jobs: str) -> set[str]:
    async with conn.transaction():
        await conn.execute(f"set local role {role}")
        return set(await _claim(conn, *jobs))


async def test_an_executor_leases_only_jobs_of_its_product(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    jobs = ("outbox_partitions", "inbox_keep", "anybodys", "tidy_up")
    await _clean(conn, *jobs[:3])
    await conn.execute("select penstock.put_job('tidy_up', 60, 'inbox')")
    assert await _claim_as(conn, "penstock_outbox_executor", *jobs) == {jobs[0], jobs[2]}
    assert await _claim_as(conn, "penstock_inbox_executor", *jobs) == {jobs[1], jobs[3]}


@pytest.mark.parametrize("role", ["penstock_operator", "penstock_owner"])
async def test_operators_and_the_owner_lease_any_job(
    conn: "asyncpg.Connection[asyncpg.Record]", role: str
) -> None:
    await _clean(conn, "outbox_partitions", "inbox_keep")
    claimed = await _claim_as(conn, role, "outbox_partitions", "inbox_keep")
    assert claimed == {"outbox_partitions", "inbox_keep"}


async def test_without_an_executor_role_there_is_nothing_to_check(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    await _clean(conn)
    await conn.execute("select penstock.put_job('j', 60, 'roleless')")
    assert await _claim_as(conn, "penstock_outbox_executor", "j") == {"j"}


async def test_every_installed_job_belongs_to_a_product(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    assert await conn.fetch("select job from penstock.schedule where product is null") == []


async def test_operators_do_not_make_jobs(conn: "asyncpg.Connection[asyncpg.Record]") -> None:
    async with conn.transaction():
        await conn.execute("set local role penstock_operator")
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            async with conn.transaction():
                await conn.execute("select penstock.put_job('j', 60)")
