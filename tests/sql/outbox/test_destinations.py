"""Claims for destinations: room, rate, breaker and pause, decided in SQL for all workers."""

from collections import Counter
from datetime import timedelta
from typing import TypeAlias
from uuid import uuid4

import asyncpg
import pytest
from tests.sql.outbox.test_plans import Plans
from tests.support.interleave import Stage
from tests.support.outbox import Leased, SqlOutbox

Session: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
CLAIM = "select * from app.outbox_claim_for($1, $2, $3)"
WEIGH = (
    "select breaker, moved from app.outbox_weigh(array['a'], array[$1::int], array[$2::int], $3)"
)


class Sending(SqlOutbox):
    """The outbox with destinations."""

    async def destination(self, name: str, topic: str | None = None, **values: object) -> None:
        """Put a destination and, with a topic, a route of the same name."""
        await self.conn.execute(
            "select app.outbox_put_destination($1, 'stdout', '{}', 'test')", name
        )
        for column, value in values.items():
            await self.conn.execute(
                f"update public.outbox_destinations set {column} = $2 where name = $1", name, value
            )
        if topic is not None:
            await self.conn.execute("select app.outbox_put_route($1, $2, $1, 'test')", name, topic)

    async def ready(self, count: int, topic: str = "t") -> None:
        """Publish events and let them take their routes."""
        await self.publish(count, topic=topic)
        await self.conn.execute("select app.outbox_expand(1000)")

    async def take(self, **room: int) -> list[Leased]:
        """Claim for destinations."""
        rows = await self.conn.fetch(CLAIM, list(room), list(room.values()), uuid4())
        return [
            Leased(
                row["seq"],
                row["id"],
                row["destination"],
                row["processing_token"],
                row["attempts"],
                row["lease_epoch"],
            )
            for row in rows
        ]

    async def weigh(self, ok: int, failed: int, code: str = "HTTP_503") -> str:
        """Report calls to `a`."""
        state: str = await self.conn.fetchval(WEIGH, ok, failed, [code])
        return state


@pytest.fixture
async def outbox(conn: Session) -> Sending:
    sending = Sending(conn)
    await sending.make_clock_settable()
    return sending


async def test_each_destination_is_given_up_to_its_room(outbox: Sending) -> None:
    await outbox.destination("a", "t")
    await outbox.destination("b", "t")
    await outbox.ready(20)
    taken = Counter(item.topic for item in await outbox.take(a=3, b=5))
    assert taken == {"a": 3, "b": 5}
    assert await outbox.claim() == [], "the others are not for who claims everything"
    assert Counter(item.topic for item in await outbox.take(a=100)) == {"a": 17}


async def test_several_routes_of_a_destination_share_its_room(outbox: Sending) -> None:
    await outbox.destination("a", "t")
    await outbox.conn.execute("select app.outbox_put_route('a2', 'u', 'a', 'test')")
    await outbox.ready(4)
    await outbox.ready(4, "u")
    first = await outbox.take(a=6)
    assert [item.seq for item in first] == sorted(item.seq for item in first)
    assert len(first) == 6
    assert len(await outbox.take(a=6)) == 2


async def test_a_token_is_used_once(outbox: Sending) -> None:
    await outbox.destination("a", "t")
    await outbox.ready(2)
    token = uuid4()
    await outbox.conn.fetch(CLAIM, ["a"], [1], token)
    with pytest.raises(asyncpg.PostgresError, match="token of its own"):
        await outbox.conn.fetch(CLAIM, ["a"], [1], token)


async def test_what_is_paused_disabled_or_unknown_is_given_nothing(outbox: Sending) -> None:
    await outbox.destination("a", "t")
    await outbox.ready(1)
    await outbox.conn.execute("select penstock.pause_target('destination/a', 'test')")
    assert await outbox.take(a=5, nobody=5) == []
    await outbox.conn.execute("select penstock.resume_target('destination/a', 'test')")
    await outbox.conn.execute("select penstock.pause_target('topic/t', 'test')")
    assert await outbox.take(a=5) == []
    await outbox.conn.execute("select penstock.resume_target('topic/t', 'test')")
    await outbox.conn.execute(
        "select app.outbox_put_destination('a', null, '{\"enabled\": false}', 'test')"
    )
    assert await outbox.take(a=5) == []
    await outbox.conn.execute(
        "select app.outbox_put_destination('a', null, '{\"enabled\": true}', 'test')"
    )
    (item,) = await outbox.take(a=5)
    assert item.attempts == 1, "waiting has cost no attempt"


async def test_a_pause_stops_a_handler_in_python_too(outbox: Sending) -> None:
    await outbox.conn.execute("select app.outbox_register('{python/t}', '{t}', '{python}')")
    await outbox.publish(1)
    await outbox.conn.execute("select penstock.pause_target('destination/python', 'test')")
    assert await outbox.claim(topics=["t"]) == []
    await outbox.conn.execute("select penstock.resume_target('destination/python', 'test')")
    assert len(await outbox.claim(topics=["t"])) == 1


async def test_the_highest_rate_stops_no_claim(outbox: Sending) -> None:
    await outbox.destination("a", "t", rate_per_s=1_000_000_000)
    await outbox.ready(3)
    assert len(await outbox.take(a=2)) == 2
    for rate in ("NaN", "Infinity", "1e10", "0"):
        with pytest.raises(asyncpg.CheckViolationError):
            await outbox.conn.execute(
                "update public.outbox_destinations set rate_per_s = $1::text::numeric", rate
            )


async def test_a_rate_is_drawn_from_by_what_is_taken(outbox: Sending) -> None:
    await outbox.destination("a", "t", rate_per_s=20)
    await outbox.ready(50)
    assert len(await outbox.take(a=2)) == 2
    assert len(await outbox.take(a=100)) == 3, "a quarter of a second's worth is saved up at most"
    assert await outbox.take(a=100) == []
    await outbox.advance(timedelta(seconds=0.2))
    assert len(await outbox.take(a=100)) == 4
    await outbox.advance(timedelta(hours=1))
    assert len(await outbox.take(a=100)) == 5


async def test_a_slow_rate_still_lets_one_through(outbox: Sending) -> None:
    await outbox.destination("a", "t", rate_per_s=0.1)
    await outbox.ready(3)
    assert len(await outbox.take(a=10)) == 1
    await outbox.advance(timedelta(seconds=9))
    assert await outbox.take(a=10) == []
    await outbox.advance(timedelta(seconds=1.1))
    assert len(await outbox.take(a=10)) == 1


async def test_failures_in_a_row_open_the_breaker_and_a_success_in_between_does_not(
    outbox: Sending,
) -> None:
    await outbox.destination("a", "t", breaker_after=5)
    assert await outbox.weigh(0, 4) == "closed"
    assert await outbox.weigh(1, 0) == "closed"
    assert await outbox.weigh(0, 4) == "closed"
    assert await outbox.weigh(0, 1) == "open"


async def test_half_of_the_calls_failing_opens_the_breaker(outbox: Sending) -> None:
    await outbox.destination("a", "t", breaker_after=1000)
    assert await outbox.weigh(20, 9) == "closed"
    await outbox.advance(timedelta(seconds=11))
    assert await outbox.weigh(5, 9) == "closed", "too few to judge, and the old ones do not count"
    assert await outbox.weigh(2, 4) == "open"


async def test_a_receiver_that_does_not_know_us_opens_the_breaker_at_once(outbox: Sending) -> None:
    await outbox.destination("a", "t")
    assert await outbox.weigh(0, 1, "HTTP_401") == "open"


async def test_an_open_breaker_lets_one_through_when_its_time_is_over(outbox: Sending) -> None:
    await outbox.destination("a", "t", breaker_after=1, breaker_pause_s=5)
    await outbox.ready(5)
    assert await outbox.weigh(0, 1) == "open"
    assert await outbox.take(a=5) == []
    await outbox.advance(timedelta(seconds=5.1))
    (probe,) = await outbox.take(a=5)
    assert await outbox.take(a=5) == [], "one at a time"
    assert await outbox.weigh(0, 1) == "open"
    await outbox.advance(timedelta(seconds=5.1))
    assert await outbox.take(a=5) == [], "the second time it stays open twice as long"
    await outbox.advance(timedelta(seconds=5.1))
    (other,) = await outbox.take(a=5)
    assert other.seq != probe.seq
    assert await outbox.weigh(1, 0) == "closed"
    assert len(await outbox.take(a=5)) == 3
    row = await outbox.conn.fetchrow(
        "select breaker_opens, breaker_failures, breaker_until from public.outbox_destinations"
    )
    assert row is not None
    assert tuple(row) == (0, 0, None)


async def test_a_probe_that_died_is_followed_by_another(outbox: Sending) -> None:
    await outbox.destination("a", "t", breaker_after=1)
    await outbox.ready(5)
    await outbox.weigh(0, 1)
    await outbox.advance(timedelta(seconds=6))
    assert len(await outbox.take(a=5)) == 1
    await outbox.advance(timedelta(seconds=31))
    assert len(await outbox.take(a=5)) == 1, "its lease has ended without an answer"


async def test_stragglers_neither_prolong_nor_close_an_open_breaker(outbox: Sending) -> None:
    await outbox.destination("a", "t", breaker_after=1)
    await outbox.weigh(0, 1)
    until = "select breaker_until from public.outbox_destinations"
    before = await outbox.conn.fetchval(until)
    assert await outbox.weigh(0, 7) == "open"
    assert await outbox.weigh(3, 0) == "open"
    assert await outbox.conn.fetchval(until) == before


async def test_two_workers_do_not_both_send_the_probe(
    outbox: Sending, database_url: str, conn: Session
) -> None:
    await outbox.destination("a", "t", breaker_after=1)
    await outbox.ready(5)
    await outbox.weigh(0, 1)
    await outbox.advance(timedelta(seconds=6))
    async with Stage(database_url) as stage:
        one, two = await stage.session("one"), await stage.session("two")
        await one.begin()
        assert len(await one.run(CLAIM, ["a"], [5], uuid4())) == 1
        assert await two.run(CLAIM, ["a"], [5], uuid4()) == [], "it does not wait, it goes without"
        await one.commit()
        assert await two.run(CLAIM, ["a"], [5], uuid4()) == []
    state = "select breaker from public.outbox_destinations"
    assert await conn.fetchval(state) == "half_open"


async def test_reports_of_two_workers_add_up(outbox: Sending, database_url: str) -> None:
    await outbox.destination("a", "t", breaker_after=5)
    async with Stage(database_url) as stage:
        one, two = await stage.session("one"), await stage.session("two")
        await one.begin()
        await one.run(WEIGH, 0, 3, ["HTTP_503"])
        other = two.start(WEIGH, 0, 2, ["HTTP_503"])
        await stage.until_blocked(two, other)
        await one.commit()
        (row,) = await other.done()
    assert tuple(row) == ("open", True)


async def test_changing_a_destination_tries_it_anew(outbox: Sending) -> None:
    await outbox.destination("a", "t", breaker_after=1)
    await outbox.ready(1)
    await outbox.weigh(0, 1)
    assert await outbox.take(a=1) == []
    await outbox.conn.execute("select app.outbox_put_destination('a', null, '{}', 'fixed')")
    assert len(await outbox.take(a=1)) == 1


@pytest.mark.parametrize(
    "config",
    [
        '{"config": {"api_key": "x"}}',
        '{"config": {"headers": {"Authorization": "Bearer x"}}}',
        '{"config": {"a": [{"b": {"password": "x"}}]}}',
    ],
)
async def test_no_secret_gets_into_a_configuration(outbox: Sending, config: str) -> None:
    with pytest.raises(asyncpg.PostgresError, match="holds no secrets"):
        await outbox.conn.execute(
            "select app.outbox_put_destination('a', 'http', $1::text::jsonb, 'test')", config
        )


async def test_a_backlog_of_one_destination_is_not_read_for_another(outbox: Sending) -> None:
    await outbox.destination("a", "t")
    await outbox.destination("b", "u")
    await outbox.conn.execute(
        "insert into public.outbox (topic, payload, route, event_topic)"
        " select 'a', '{}', 'a', 't' from generate_series(1, 20000)"
    )
    await outbox.conn.execute("analyze public.outbox")
    plans = Plans(outbox.conn)
    query = "select * from app.outbox_claim_for('{b}', '{100}', gen_random_uuid())"
    for _ in range(2):
        await outbox.ready(5, "u")
        nodes = await plans.of(query)
        picks = [node for node in nodes if node.get("Index Name") == "outbox_routed"]
        assert [node["Actual Rows"] for node in picks] == [5]
        assert max(n["Actual Rows"] + n.get("Rows Removed by Filter", 0) for n in nodes) <= 5
        await outbox.conn.execute(
            "delete from pg_statistic where starelid = 'public.outbox'::regclass"
        )


async def _count(outbox: Sending, condition: str) -> int:
    found: int = await outbox.conn.fetchval(
        f"select count(*) from public.outbox where route = 'a' and {condition}"
    )
    return found


async def test_what_a_shut_destination_cannot_take_is_out_of_the_way_and_comes_back(
    outbox: Sending,
) -> None:
    await outbox.destination("a", "t", breaker_after=1)
    await outbox.ready(50)
    await outbox.weigh(0, 1)
    await outbox.conn.execute("select app.outbox_balance()")
    assert await _count(outbox, "pos is not null") == 0
    assert await outbox.tend(sweep=True) == (0, 0, 0), "no time brings it back"
    await outbox.advance(timedelta(seconds=6))
    assert len(await outbox.take(a=5)) == 1, "the probe is fetched from what was set aside"
    await outbox.conn.execute("select app.outbox_balance()")
    assert await _count(outbox, "pos is not null") == 0
    assert await outbox.weigh(1, 0) == "closed"
    assert await outbox.conn.fetchval("select app.outbox_balance()") == 49
    taken = await outbox.take(a=100)
    assert len(taken) == 49
    assert {item.attempts for item in taken} == {1}


async def test_suspects_that_were_set_aside_come_back_one_by_one(outbox: Sending) -> None:
    """What may have killed its workers takes no other along, after an outage either."""
    await outbox.destination("a", "t", breaker_after=1)
    await outbox.ready(3)
    await outbox.conn.execute("update public.outbox set error_code = 'ZOMBIE_SUSPECT'")
    await outbox.weigh(0, 1)
    await outbox.conn.execute("select app.outbox_balance()")
    assert await outbox.weigh(1, 0) == "open", "a straggler"
    await outbox.advance(timedelta(seconds=6))
    for _ in range(3):
        await outbox.conn.execute("select app.outbox_balance()")
        await outbox.tend(sweep=True)
        await outbox.tend(sweep=True)
        (item,) = await outbox.take(a=5)
        assert await outbox.weigh(1, 0) == "closed"
        await outbox.finish([item])


async def test_of_a_large_backlog_only_the_next_part_is_ready(outbox: Sending) -> None:
    await outbox.destination("a", "t")
    await outbox.conn.execute(
        "insert into public.outbox (topic, payload, route, event_topic)"
        " select 'a', '{}', 'a', 't' from generate_series(1, 4001)"
    )
    await outbox.conn.execute("select app.outbox_balance()")
    assert await _count(outbox, "pos is not null") == 2000
    await outbox.conn.execute("select app.outbox_balance()")
    assert await _count(outbox, "pos is not null") == 2000
    seen: set[int] = set()
    while items := await outbox.take(a=500):
        seen |= {item.seq for item in items}
        await outbox.finish(items)
    assert len(seen) == 4001, "all of it is taken, also what was set aside"


@pytest.mark.parametrize("state", ["aside", "ready"])
async def test_setting_aside_and_fetching_read_only_what_they_move(
    outbox: Sending, state: str
) -> None:
    await outbox.destination("a", "t")
    await outbox.destination("b", "u")
    await outbox.conn.execute(
        "insert into public.outbox (topic, payload, route, event_topic, pos, next_attempt_at)"
        " select 'a', '{}', 'a', 't', case when $1 then nextval('penstock.outbox_next') end,"
        " case when not $1 then '9999-12-31 00:00:00+00'::timestamptz end"
        " from generate_series(1, 20000)",
        state == "ready",
    )
    await outbox.conn.execute("analyze public.outbox")
    await outbox.ready(5, "u")
    nodes = await Plans(outbox.conn).of("select app.outbox_balance()")
    assert {node["Node Type"] for node in nodes} <= {"Index Scan", "Index Only Scan", "Tid Scan"}
    read = max(n["Actual Rows"] + n.get("Rows Removed by Filter", 0) for n in nodes)
    assert read <= 5000
    nodes = await Plans(outbox.conn).of(
        "select * from app.outbox_claim_for('{b}', '{100}', gen_random_uuid())"
    )
    assert max(n["Actual Rows"] + n.get("Rows Removed by Filter", 0) for n in nodes) <= 5
