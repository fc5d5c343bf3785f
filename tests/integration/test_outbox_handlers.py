"""Each kind of handler, end to end: published, claimed by a real worker, handled, finished."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from sqlalchemy import text
from tests.support.drivers import with_session
from tests.support.jobs import Connection, Job, effects, publish, states, work

from penstock import (
    Attempt,
    BadHandler,
    Batch,
    Event,
    Penstock,
    Reject,
    Retry,
    Topic,
    Tx,
    Unknown,
    Verdict,
)
from penstock.kernel.errors import NotFound, NotOpened, WrongUsage
from penstock.kernel.events import HandlerRaised, ItemDied, Observation
from penstock.kernel.settings import with_values


@pytest.fixture
async def ps(database_url: str, conn: Connection) -> Penstock:
    await conn.execute("create table effects (number int, kind text)")
    return Penstock(database_url)


@pytest.fixture
def topic(ps: Penstock) -> Topic[Job]:
    return ps.outbox.topic("jobs", Job)


async def test_plain_handlers_are_finished_in_batches(
    ps: Penstock, topic: Topic[Job], conn: Connection
) -> None:
    seen: list[tuple[int, int]] = []

    @topic.on()
    async def handler(event: Event[Job], attempt: Attempt) -> None:
        seen.append((event.data.number, attempt.number))

    await publish(conn, topic, *range(300))
    report = await work(ps)
    assert (report.claimed, report.finished) == (300, 300)
    assert sorted(seen) == [(number, 1) for number in range(300)]
    assert await states(conn) == {"DELIVERED": 300}


async def test_blocking_handlers_run_in_threads(
    ps: Penstock, topic: Topic[Job], conn: Connection, database_url: str
) -> None:
    @topic.on(concurrency=4)
    def handler(event: Event[Job]) -> None:
        with psycopg.connect(database_url) as user:
            user.execute("insert into effects values (%s)", [event.data.number])
            event.finish_sync(user)

    await publish(conn, topic, *range(20))
    assert (await work(ps)).finished == 20
    assert await effects(conn) == list(range(20))
    assert await states(conn) == {"DELIVERED": 20}


async def test_with_tx_effect_finish_and_the_next_event_are_one_commit(
    ps: Penstock, topic: Topic[Job], conn: Connection
) -> None:
    following = ps.outbox.topic("following", Job)

    @topic.on()
    async def handler(event: Event[Job], tx: Tx) -> None:
        await tx.execute("insert into effects values ($1)", event.data.number)
        await following.publish(tx, Job(event.data.number + 100))
        if event.data.number == 2:
            raise ValueError

    @following.on()
    async def then(event: Event[Job], tx: Tx) -> None:
        await tx.execute("insert into effects values ($1)", event.data.number)

    await publish(conn, topic, 1, 2, 3)
    report = await work(ps)
    assert (report.finished, report.retried) == (4, 1)
    assert await effects(conn) == [1, 3, 101, 103]
    assert await states(conn) == {"DELIVERED": 4, "WAITING": 1}


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_the_users_own_session_finishes_the_event(
    ps: Penstock, topic: Topic[Job], conn: Connection, database_url: str, driver: str
) -> None:
    @topic.on()
    async def handler(event: Event[Job]) -> None:
        async with with_session(driver)(database_url, False) as session:
            await session.execute(
                text("insert into effects values (:number)"), {"number": event.data.number}
            )
            await event.finish(session)
            if event.data.number == 1:
                await session.commit()
            # 2 forgets to commit: the session rolls back, and the event must come again

    await publish(conn, topic, 1, 2)
    await asyncio.wait_for(_until_states(ps, conn, {"DELIVERED": 1, "DEAD": 1}), 20)
    assert await effects(conn) == [1]


async def _until_states(ps: Penstock, conn: Connection, wanted: dict[str, int]) -> None:
    await conn.execute("update penstock.queue_config set max_attempts = 2 where queue = 'outbox'")
    while await states(conn) != wanted:
        await work(ps)


async def test_a_batch_with_tx_commits_once(
    ps: Penstock, topic: Topic[Job], conn: Connection
) -> None:
    commits: list[int] = []

    @topic.on_batch(100)
    async def handler(events: Batch[Job], tx: Tx) -> None:
        commits.append(len(events))
        rows = [(event.data.number,) for event in events]
        await tx.executemany("insert into effects values ($1)", rows)

    await publish(conn, topic, *range(250))
    assert (await work(ps)).finished == 250
    assert await effects(conn) == list(range(250))
    assert len(commits) <= 10


async def test_a_poisoned_event_dies_alone(
    ps: Penstock, topic: Topic[Job], conn: Connection
) -> None:
    @topic.on_batch(50, max_attempts=1)
    async def handler(events: Batch[Job], tx: Tx) -> None:
        for event in events:
            await tx.execute("insert into effects values (1 / $1::int)", event.data.number)

    await publish(conn, topic, *range(20))
    report = await work(ps)
    assert (report.finished, report.rejected) == (19, 1)
    assert len(await effects(conn)) == 19
    dead = await conn.fetchrow("select error_code, error from app.outbox_dead")
    assert dead is not None
    assert dead["error_code"] == "MAX_ATTEMPTS"
    assert "DivisionByZeroError" in dead["error"]


async def test_verdicts_become_states(ps: Penstock, topic: Topic[Job], conn: Connection) -> None:
    answers: list[Verdict] = [Retry(after=timedelta(hours=1)), Reject("BAD", "why"), Unknown("?")]

    @topic.on()
    async def handler(event: Event[Job]) -> Verdict:
        return answers[event.data.number]

    await publish(conn, topic, 0, 1, 2)
    report = await work(ps)
    assert (report.retried, report.rejected, report.held) == (1, 1, 1)
    assert await states(conn) == {"WAITING": 1, "DEAD": 1, "HELD": 1}
    waiting = await conn.fetchval(
        "select next_attempt_at - penstock.clock() from public.outbox where error_code = 'RETRY'"
    )
    assert timedelta(minutes=4) < waiting < timedelta(minutes=61)


async def test_a_payload_of_another_shape_is_dead_at_once(
    ps: Penstock, topic: Topic[Job], conn: Connection
) -> None:
    @topic.on()
    async def handler(event: Event[Job]) -> None: ...

    seen: list[Observation] = []
    ps.subscribe(seen.append)
    await conn.execute("select app.outbox_publish(null, 'jobs', '{\"number\": \"secret\"}')")
    assert (await work(ps)).rejected == 1
    (died,) = [each for each in seen if isinstance(each, ItemDied)]
    assert (died.queue, died.topic, died.code) == ("outbox", "jobs", "PAYLOAD_INVALID")
    assert died.level == "error"
    dead = await conn.fetchrow("select error_code, error from app.outbox_dead")
    assert dead is not None
    assert dead["error_code"] == "PAYLOAD_INVALID"
    assert "secret" not in dead["error"]


async def test_a_death_by_the_queues_own_limit_is_told_too(
    ps: Penstock, topic: Topic[Job], conn: Connection
) -> None:
    @topic.on(max_attempts=100)
    async def handler(event: Event[Job]) -> Retry:
        return Retry(code="AWAY")

    await conn.execute("update penstock.queue_config set max_attempts = 1 where queue = 'outbox'")
    seen: list[Observation] = []
    ps.subscribe(seen.append)
    await publish(conn, topic, 1)
    await work(ps)
    assert await states(conn) == {"DEAD": 1}
    (died,) = [each for each in seen if isinstance(each, ItemDied)]
    assert (died.attempt, died.code) == (1, "MAX_ATTEMPTS")


async def test_what_an_exception_says_is_not_kept(
    ps: Penstock, topic: Topic[Job], conn: Connection
) -> None:
    seen: list[Observation] = []
    ps.subscribe(seen.append)

    @topic.on(max_attempts=1)
    async def handler(event: Event[Job]) -> None:
        raise RuntimeError("card canary")

    await publish(conn, topic, 1)
    await work(ps)
    row = await conn.fetchrow("select * from public.outbox")
    assert "canary" not in str(row)
    assert "canary" not in str(seen)
    assert any(isinstance(each, HandlerRaised) for each in seen)


async def test_only_topics_with_handlers_are_claimed(
    ps: Penstock, topic: Topic[Job], conn: Connection
) -> None:
    other = ps.outbox.topic("elsewhere", Job)

    @topic.on()
    async def handler(event: Event[Job]) -> None: ...

    await publish(conn, topic, 1)
    await publish(conn, other, 2)
    assert (await work(ps)).claimed == 1
    assert await states(conn) == {"DELIVERED": 1, "READY": 1}


async def test_resources_are_injected_opened_once_and_overridden(
    ps: Penstock, topic: Topic[Job], conn: Connection
) -> None:
    class Mailer:
        def __init__(self, name: str) -> None:
            self.sent: list[str] = []
            self.name = name

    opened: list[str] = []

    async def mailer() -> AsyncIterator[Mailer]:
        opened.append("open")
        yield Mailer("real")
        opened.append("close")

    mailer.__annotations__["return"] = AsyncIterator[Mailer]
    ps.resource(mailer)
    used: list[str] = []

    async def handler(event: Event[Job], post: Mailer) -> None:
        used.append(post.name)

    handler.__annotations__["post"] = Mailer
    topic.on()(handler)
    await publish(conn, topic, 1, 2)
    await work(ps)
    assert (used, opened) == (["real", "real"], ["open", "close"])
    await publish(conn, topic, 3)
    with ps.override(Mailer, Mailer("fake")):
        await work(ps)
    assert used[2:] == ["fake"]
    assert opened == ["open", "close"]


@pytest.mark.parametrize("allowed", [1, 3])
async def test_a_process_runs_no_more_handlers_at_once_than_it_is_told(
    ps: Penstock, topic: Topic[Job], conn: Connection, allowed: int
) -> None:
    other = ps.outbox.topic("other", Job)
    ps.use(with_values(ps.settings, concurrency=allowed))
    running: list[int] = []
    most: list[int] = [0]
    reached = asyncio.Event()

    async def handler(event: Event[Job]) -> None:
        running.append(1)
        most.append(len(running))
        if len(running) == allowed:
            reached.set()
        async with asyncio.timeout(10):
            await reached.wait()
        await asyncio.sleep(0.002)
        running.pop()

    topic.on(concurrency=2)(handler)
    other.on(concurrency=2)(handler)
    await publish(conn, topic, *range(20))
    await publish(conn, other, *range(20))
    assert (await work(ps)).finished == 40
    assert max(most) == allowed


async def test_what_is_wrong_is_said_at_registration_or_at_start(
    ps: Penstock, topic: Topic[Job]
) -> None:
    async with ps:
        with pytest.raises(WrongUsage, match="no handler"):
            await ps.work(only=["outbox"], until_idle=True)
        unknown: Any = "letters"
        with pytest.raises(NotFound):
            await ps.work(only=[unknown])

    @topic.on()
    async def handler(event: Event[Job]) -> None: ...

    async def other(event: Event[Job]) -> None: ...

    with pytest.raises(BadHandler, match="has a handler handler already"):
        topic.on(name="handler")(other)
    with pytest.raises(BadHandler, match="cannot name a handler"):
        topic.on(name="a/b")(other)
    wrong = ps.outbox.topic("wrong", dict)
    mistaken: Any = other
    with pytest.raises(BadHandler, match=r"takes Event\[Job\]"):
        wrong.on()(mistaken)
    with pytest.raises(BadHandler):
        topic.on(concurrency=0)
    with pytest.raises(NotOpened):
        await ps.work()


async def test_a_process_may_be_told_fewer_attempts_than_the_handler_allows(
    ps: Penstock, topic: Topic[Job], conn: Connection
) -> None:
    @topic.on(max_attempts=10)
    async def handler(event: Event[Job]) -> Verdict:
        return Retry(reason="not today")

    ps.use(with_values(ps.settings, max_attempts=1, poll_ms=20))
    await publish(conn, topic, 1)
    assert (await work(ps)).rejected == 1
    assert await states(conn) == {"DEAD": 1}
