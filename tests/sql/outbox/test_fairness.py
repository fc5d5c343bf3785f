"""Fairness between tenants: a flood of one takes no more than its share of a claim."""

from collections import Counter
from typing import TypeAlias
from uuid import UUID, uuid4

import asyncpg
import pytest
from tests.sql.outbox.test_plans import Plans
from tests.support.outbox import Leased, Routed, SqlOutbox

Session: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


@pytest.fixture
async def outbox(conn: Session) -> SqlOutbox:
    outbox = SqlOutbox(conn)
    await outbox.policy(fairness="round_robin")
    return outbox


async def _fill(conn: Session, tenant: UUID | None, count: int) -> None:
    await conn.execute(
        """insert into public.outbox (topic, payload, tenant_id)
           select 't', '{}', $1 from generate_series(1, $2::int)""",
        *(tenant, count),
    )


async def _shares(conn: Session, items: list[Leased]) -> Counter[UUID | None]:
    rows = await conn.fetch(
        "select tenant_id from public.outbox where seq = any($1)", [item.seq for item in items]
    )
    return Counter(row[0] for row in rows)


async def test_a_flood_of_one_tenant_leaves_the_others_their_share(
    conn: Session, outbox: SqlOutbox
) -> None:
    loud, *quiet = (uuid4() for _ in range(4))
    await _fill(conn, loud, 5000)
    for tenant in quiet:
        await _fill(conn, tenant, 30)
    shares = await _shares(conn, await outbox.claim(100))
    assert sum(shares.values()) == 100
    assert all(shares[tenant] == 20 for tenant in quiet)
    await outbox.policy(fairness="none")
    assert await _shares(conn, await outbox.claim(100)) == {loud: 100}


async def test_nothing_is_left_out_and_nothing_comes_twice(
    conn: Session, outbox: SqlOutbox
) -> None:
    for tenant in (uuid4(), uuid4(), None):
        await _fill(conn, tenant, 70)
    seen: list[int] = []
    while items := await outbox.claim(50):
        seen += [item.seq for item in items]
        await outbox.finish(items)
    assert len(seen) == len(set(seen)) == 210


async def test_with_more_tenants_than_a_claim_holds_all_have_their_turn(
    conn: Session, outbox: SqlOutbox
) -> None:
    await conn.execute(
        """insert into public.outbox (topic, payload, tenant_id)
           select 't', '{}', gen_random_uuid() from generate_series(1, 40)"""
    )
    claims = [await outbox.claim(10) for _ in range(4)]
    assert [len(items) for items in claims] == [10] * 4
    assert len({item.seq for items in claims for item in items}) == 40


async def test_topics_and_keys_are_respected(conn: Session, outbox: SqlOutbox) -> None:
    tenant = uuid4()
    await outbox.publish(3, tenant=tenant, key="k")
    await outbox.publish(3, tenant=tenant, topic="other")
    assert len(await outbox.claim(topics=["t"])) == 1
    assert await outbox.claim(skip=["other"]) == []
    assert len(await outbox.claim(tenant=tenant)) == 3


TAKE = "select tenant_id, seq from app.outbox_claim_for(array['a'], array[$1::int], $2)"
LOUD, SMALL = UUID(int=1), UUID(int=2)


@pytest.fixture
async def routed(conn: Session) -> Routed:
    """A destination to which one tenant has sent ten thousand events before another ten."""
    routed = Routed(conn)
    await routed.policy(fairness="round_robin")
    await routed.route("r", "*", to="a")
    await _fill(conn, LOUD, 10_000)
    await _fill(conn, SMALL, 10)
    return routed


async def _first_claims(routed: Routed, count: int) -> Counter[UUID | None]:
    """What a worker with room for 50 is given first."""
    taken: Counter[UUID | None] = Counter()
    for _ in range(count):
        await routed.conn.fetchval("select app.outbox_expand(200)")
        rows = await routed.conn.fetch(TAKE, 50, uuid4())
        assert len(rows) == 50
        taken.update(row["tenant_id"] for row in rows)
    return taken


async def _wait(routed: Routed, *, aside: bool) -> None:
    """Let all take their route by age, and all but the oldest wait aside."""
    await routed.policy(fairness="none")
    await routed.conn.execute("select app.outbox_expand(1000) from generate_series(1, 11)")
    if aside:
        await routed.conn.execute("select app.outbox_balance() from generate_series(1, 3)")
        query = "select count(*) from public.outbox where tenant_id = $1 and pos is not null"
        assert not await routed.conn.fetchval(query, SMALL)
    await routed.policy(fairness="round_robin")


@pytest.mark.parametrize("state", ["published", "ready", "aside"])
async def test_a_destination_is_shared_as_well(routed: Routed, state: str) -> None:
    if state != "published":
        await _wait(routed, aside=state == "aside")
    assert (await _first_claims(routed, 2))[SMALL] == 10


async def test_without_the_policy_a_destination_goes_by_age(conn: Session, routed: Routed) -> None:
    await routed.policy(fairness="none")
    assert (await _first_claims(routed, 2))[SMALL] == 0


async def test_shares_of_a_destination_leave_nothing_out_and_nothing_comes_twice(
    conn: Session,
) -> None:
    routed = Routed(conn)
    await routed.policy(fairness="round_robin")
    await routed.route("r", "*", to="a")
    await routed.route("r2", "t", to="a")
    for tenant in (uuid4(), uuid4(), None):
        await _fill(conn, tenant, 30)
    await routed.expand()
    await conn.execute("select app.outbox_set_aside(10)")
    seen: list[int] = []
    while rows := await conn.fetch(TAKE, 25, uuid4()):
        seen += [row["seq"] for row in rows]
    assert len(seen) == len(set(seen)) == 180


async def test_more_tenants_than_a_destination_has_room_for_have_their_turn(conn: Session) -> None:
    routed = Routed(conn)
    await routed.policy(fairness="round_robin")
    await routed.route("r", "*", to="a")
    await _fill(conn, LOUD, 300)
    for _ in range(20):
        await _fill(conn, uuid4(), 1)
    await routed.conn.fetch("select app.outbox_expand(1000)")
    taken: Counter[UUID] = Counter()
    while len(taken) < 21:
        rows = await conn.fetch(TAKE, 5, uuid4())
        assert len(rows) == 5, "the loud one has always more"
        taken.update(row["tenant_id"] for row in rows)


FIRST, LAST = UUID(int=0), UUID(int=2**128 - 1)


async def test_the_first_and_the_last_of_all_tenants_have_a_share(
    conn: Session, outbox: SqlOutbox
) -> None:
    await _fill(conn, LOUD, 20)
    for tenant in (FIRST, LAST):
        await _fill(conn, tenant, 5)
    assert await _shares(conn, await outbox.claim(12)) == {LOUD: 6, FIRST: 3, LAST: 3}


@pytest.mark.parametrize("aside", [False, True])
async def test_the_first_and_the_last_have_a_share_of_a_destination(
    conn: Session, aside: bool
) -> None:
    routed = Routed(conn)
    await routed.route("r", "*", to="a")
    for tenant in (LOUD, FIRST, LAST):
        await _fill(conn, tenant, 3)
    await routed.expand()
    if aside:
        assert await conn.fetchval("select app.outbox_set_aside(0)") == 9
    for _ in range(5):
        found = "select app.outbox_route_tenants('r', $1, $2)"
        assert sorted(await conn.fetchval(found, 10, aside)) == [FIRST, LOUD, LAST]
        assert len(set(await conn.fetchval(found, 2, aside))) == 2


@pytest.mark.parametrize("aside", [False, True])
async def test_what_a_fair_claim_reads_does_not_grow_with_the_backlog(
    conn: Session, routed: Routed, aside: bool
) -> None:
    await _wait(routed, aside=aside)
    nodes = await Plans(conn).of(TAKE, 50, uuid4())
    read = [
        (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
        for node in nodes
    ]
    assert max(read) <= 100
    assert {node["Node Type"] for node in nodes} <= {"Index Scan", "Index Only Scan", "Tid Scan"}
