"""Routes: none, one or several for an event, each delivery with a life of its own."""

from typing import TypeAlias

import asyncpg
import pytest
from tests.support.interleave import Stage
from tests.support.outbox import Routed

Session: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


@pytest.fixture
async def outbox(conn: Session) -> Routed:
    return Routed(conn)


@pytest.mark.parametrize(
    ("pattern", "topic", "fits"),
    [
        ("orders.paid", "orders.paid", True),
        ("orders.*", "orders.paid", True),
        ("orders.*", "order", False),
        ("*", "anything", True),
        ("*.paid", "orders.eu.paid", True),
        ("a_b%", "a_b%", True),
        ("a_b%", "axbc", False),
        ("a\\b", "a\\b", True),
    ],
)
async def test_patterns(conn: Session, pattern: str, topic: str, fits: bool) -> None:
    assert await conn.fetchval("select app.outbox_matches($1, $2)", pattern, topic) is fits


async def test_without_routes_nothing_is_expanded(outbox: Routed) -> None:
    await outbox.publish(2)
    assert await outbox.expand() == 0
    assert len(await outbox.claim()) == 2


async def test_no_route_is_archived_as_such_once_routes_are_in_use(outbox: Routed) -> None:
    await outbox.route("r", "other")
    (event,) = await outbox.publish(1)
    assert await outbox.expand() == 1
    assert await outbox.state(event) == "NO_ROUTE"


async def test_a_topic_of_one_handler_is_claimed_as_it_is(conn: Session, outbox: Routed) -> None:
    await conn.execute("select app.outbox_register('{python/t}', '{t}', '{python}')")
    await outbox.publish(1)
    assert await outbox.expand() == 0
    assert await conn.fetchval("select plain_routes from app.outbox_routing()") == ["python/t"]
    await outbox.finish([await outbox.one("t")])


async def test_what_goes_to_a_destination_takes_its_route_first(
    conn: Session, outbox: Routed
) -> None:
    await outbox.route("r", "t")
    (event,) = await outbox.publish(1)
    assert await outbox.expand() == 1
    assert await conn.fetchval("select plain_routes from app.outbox_routing()") == []
    assert await outbox.claim() == [], "who claims everything does not get what a sink must send"
    item = await outbox.one("r")
    assert item.id == event
    await outbox.finish([item])
    route = "select route from public.outbox_archive where id = $1"
    assert await conn.fetchval(route, event) == "r"


async def test_one_route_by_pattern_or_filter_leaves_the_event_the_item(
    conn: Session, outbox: Routed
) -> None:
    await outbox.route("big", "t*", where="$.n > 0")
    events = await outbox.publish(2)
    assert await outbox.expand() == 2
    assert await outbox.state(events[0]) == "NO_ROUTE"
    item = await outbox.one("big")
    assert item.id == events[1]
    assert await conn.fetchval("select count(*) from public.outbox") == 1
    assert await conn.fetchval("select topic from app.outbox_all where id = $1", item.id) == "t"
    await outbox.finish([item])
    assert await outbox.state(events[1]) == "DELIVERED"


async def test_several_routes_have_a_delivery_each(conn: Session, outbox: Routed) -> None:
    await outbox.route("a", "t")
    await outbox.route("b", "*", to="b")
    (event,) = await outbox.publish(1)
    assert await outbox.expand() == 1
    assert await outbox.expand() == 0
    assert await outbox.state(event) == "FANNED"
    assert await outbox.deliveries(event) == {"a": "READY", "b": "READY"}
    item = await outbox.one("a")
    assert item.id != event
    await outbox.finish([item])
    assert await outbox.deliveries(event) == {"a": "DELIVERED", "b": "READY"}
    assert await outbox.state(event) == "FANNED"
    await outbox.fail([await outbox.one("b")], "reject")
    (dead,) = await conn.fetch("select id, topic, attempts from app.outbox_dead")
    assert (dead["topic"], dead["attempts"]) == ("t", 1)
    await conn.fetch("select app.outbox_replay($1, 'fixed')", [dead["id"]])
    await outbox.finish([await outbox.one("b")])
    assert await outbox.deliveries(event) == {"a": "DELIVERED", "b": "DELIVERED"}
    assert await outbox.state(event) == "DELIVERED"
    left = "select count(*) from public.outbox where 't' in (topic, event_topic)"
    assert await conn.fetchval(left) == 0


async def test_a_discarded_delivery_ends_its_event_too(conn: Session, outbox: Routed) -> None:
    await outbox.route("a", "t")
    await outbox.route("b", "t", to="b")
    (event,) = await outbox.publish(1)
    await outbox.expand()
    items = await outbox.claim(topics=["a", "b"])
    await outbox.fail(items[:1], "reject")
    await outbox.finish(items[1:])
    await conn.fetch("select app.outbox_discard($1, 'hopeless')", [items[0].id])
    assert await outbox.state(event) == "DELIVERED"
    assert sorted((await outbox.deliveries(event)).values()) == ["DELIVERED", "DISCARDED"]


async def test_last_deliveries_that_end_at_once_end_the_event(
    database_url: str, outbox: Routed
) -> None:
    await outbox.route("a", "t")
    await outbox.route("b", "t", to="b")
    (event,) = await outbox.publish(1)
    await outbox.expand()
    finish = "select app.outbox_finish(array[$1::bigint], array[$2::uuid], array[$3::uuid])"
    items = [await outbox.one(route) for route in ("a", "b")]
    async with Stage(database_url) as stage:
        first, second = await stage.sessions("first", "second")
        await first.begin()
        await first.run(finish, items[0].seq, items[0].id, items[0].token)
        step = second.start(finish, items[1].seq, items[1].id, items[1].token)
        await stage.until_blocked(second, step)
        await first.commit()
        await step.done()
    assert await outbox.state(event) == "DELIVERED"


async def test_a_route_cannot_go_while_events_are_given_their_routes(
    database_url: str, outbox: Routed
) -> None:
    await outbox.route("a", "t")
    await outbox.route("b", "t", to="b")
    (event,) = await outbox.publish(1)
    async with Stage(database_url) as stage:
        expanding, removing = await stage.sessions("expanding", "removing")
        await expanding.begin()
        assert await expanding.value("select app.outbox_expand()") == 1
        step = removing.start("select app.outbox_remove_route('a', 'not wanted')")
        await stage.until_blocked(removing, step)
        await expanding.commit()
        await step.done()
    await outbox.conn.execute("select app.outbox_remove_step('a')")
    assert await outbox.deliveries(event) == {"a": "CANCELLED", "b": "READY"}
    await outbox.finish([await outbox.one("b")])
    assert await outbox.state(event) == "DELIVERED"


async def test_order_is_kept_per_key_and_route(conn: Session, outbox: Routed) -> None:
    await outbox.route("a", "t")
    await outbox.route("b", "t", to="b")
    events = await outbox.publish(3, key="k")
    for _ in events:
        assert await outbox.expand() == 1
    blocked = await outbox.one("a")
    await outbox.fail([blocked], "reject")
    seen = []
    for _ in events:
        item = await outbox.one("b")
        seen.append(await conn.fetchval("select event_id from public.outbox where id=$1", item.id))
        await outbox.finish([item])
    assert seen == events
    assert await outbox.claim(topics=["a"]) == []
    (row,) = await conn.fetch("select ordering_key, route, behind from app.outbox_blocked_keys")
    assert tuple(row) == ("k", "a", 2)
    await conn.fetch("select app.outbox_skip(array['k'], 'no', p_route => 'a')")
    await outbox.finish([await outbox.one("a")])
    await outbox.finish([await outbox.one("a")])
    assert [await outbox.state(event) for event in events] == ["DELIVERED"] * 3


async def test_handlers_alone_make_nobody_elses_event_disappear(
    conn: Session, outbox: Routed
) -> None:
    await conn.execute("set role penstock_outbox_executor")
    await conn.execute(
        """select app.outbox_register(array['python:m/t', 'python:n/t', 'python/u'],
           array['t', 't', 'u'], array['python:m', 'python:n', 'python'])"""
    )
    await conn.execute("reset role")
    (fan,) = await outbox.publish(1)
    (plain,) = await outbox.publish(1, topic="u")
    (unknown,) = await outbox.publish(1, topic="later")
    assert await outbox.expand() == 1
    states = [await outbox.state(event) for event in (fan, plain, unknown)]
    assert states == ["FANNED", "READY", "READY"]


@pytest.mark.parametrize("key", [None, "k"])
async def test_an_event_whose_routes_went_before_it_was_fanned_out_does_not_stay(
    conn: Session, outbox: Routed, key: str | None
) -> None:
    """The step as it runs when the last route goes between its two looks at the routes."""
    await outbox.route("other", "u")
    gone, after = await outbox.publish(2, key=key)
    await conn.execute(
        "select app.outbox_fan_out(array(select seq from public.outbox where id = $1))", gone
    )
    assert await outbox.state(gone) == "NO_ROUTE"
    assert await outbox.state(after) == "READY"


@pytest.mark.parametrize(
    ("query", "state"),
    [
        ("select app.outbox_put_route('r', 't', 'nowhere', 'test')", "PN011"),
        ("select app.outbox_remove_route('r', 'test')", "PN011"),
        ("select app.outbox_put_destination('d', 'python', '{}', 'test')", "PN005"),
        (
            """select app.outbox_put_destination('d', 'http',
               '{"config": {"url": "https://x", "api_key": "123"}}', 'test')""",
            "PN005",
        ),
        (
            """select app.outbox_put_destination('d', 'http',
               '{"config": {"url": "https://me:me@x"}}', 'test')""",
            "PN005",
        ),
        (
            """select app.outbox_put_destination('d', 'http',
               '{"secret_refs": ["env:A", "the secret itself"]}', 'test')""",
            "PN005",
        ),
        ("select app.outbox_rotate_destination('d', 'the secret itself', 'test')", "PN005"),
        ("select app.outbox_put_destination('d', 'http', '{}', '')", "PN205"),
        ("select app.outbox_register(array['x'], array['t'], array['python'])", "PN005"),
    ],
)
async def test_what_is_refused(conn: Session, query: str, state: str) -> None:
    with pytest.raises(asyncpg.PostgresError) as refused:
        await conn.execute(query)
    assert refused.value.sqlstate == state
