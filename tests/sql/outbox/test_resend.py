"""Resend: archived events once more to one destination, whole, in order, never twice by itself."""

from collections import Counter
from datetime import timedelta
from typing import Any, TypeAlias
from uuid import UUID

import asyncpg
import pytest
from tests.support.interleave import Stage
from tests.support.outbox import SqlOutbox

Session: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
DESTINATIONS = """
insert into public.outbox_destinations (name, kind) values ('old', 'http'), ('new', 'http');
insert into public.outbox_routes (route, topic, destination)
values ('old-orders', 'orders.*', 'old');
"""
NEW_ROUTE = """
insert into public.outbox_routes (route, topic, destination, filter)
values ('new-orders', 'orders.*', 'new', null)
"""


@pytest.fixture
async def outbox(conn: Session) -> SqlOutbox:
    outbox = SqlOutbox(conn)
    await outbox.make_clock_settable()
    await conn.execute(DESTINATIONS)
    return outbox


async def _deliver(outbox: SqlOutbox, *routes: str) -> list[UUID]:
    """Give routes to what is ready, deliver it on these routes; returns the events, in order."""
    await outbox.conn.fetch("select app.outbox_expand(1000)")
    seen: list[UUID] = []
    while items := await outbox.claim(1000, topics=list(routes)):
        seen += [
            await outbox.conn.fetchval(
                "select coalesce(event_id, id) from public.outbox where seq = $1", item.seq
            )
            for item in items
        ]
        assert await outbox.finish(items) == []
    return seen


async def _resend(conn: Session, destination: str = "new", **options: Any) -> UUID:
    values = {"since": timedelta(hours=1), "topic": None, "ids": None, "missing": False, **options}
    resend: UUID = await conn.fetchval(
        """select app.outbox_resend($1, penstock.clock() - $2::interval, null, 'to fill it', $3, $4,
           $5, 'ada')""",
        destination,
        values["since"],
        values["topic"],
        values["ids"],
        values["missing"],
    )
    return resend


async def _steps(conn: Session, resend: UUID, limit: int = 500) -> list[int]:
    """Do it to its end; returns how many were sent in each step."""
    sent: list[int] = []
    while True:
        row = await conn.fetchrow("select * from app.outbox_resend_step($1, $2)", resend, limit)
        assert row is not None
        assert row["sent"] <= row["seen"] <= limit
        sent.append(row["sent"])
        if row["ended"]:
            return sent
        assert len(sent) < 200, "it does not end"


async def test_a_new_destination_gets_what_the_old_one_got_under_the_same_ids(
    conn: Session, outbox: SqlOutbox
) -> None:
    await outbox.publish(25, topic="orders.paid")
    await outbox.publish(5, topic="bills.sent")
    first = await _deliver(outbox, "old-orders")
    await conn.execute(NEW_ROUTE)
    await conn.execute("set role penstock_operator")
    resend = await _resend(conn)
    steps = await _steps(conn, resend, 10)
    await conn.execute("reset role")
    assert sum(steps) == 25
    assert max(steps) == 10
    assert await _deliver(outbox, "old-orders") == []
    assert await _deliver(outbox, "new-orders") == first
    row = await conn.fetchrow("select * from public.outbox_resends")
    assert row is not None
    assert (row["seen"], row["sent"], row["ended_at"] is not None) == (30, 25, True)
    (audit,) = await conn.fetch("select * from audit.audit_logs where operation = 'resend'")
    assert (audit["id"], audit["operator"], audit["reason"]) == (
        row["audit_id"],
        "ada",
        "to fill it",
    )


async def test_a_resent_event_is_what_it_was(conn: Session, outbox: SqlOutbox) -> None:
    tenant = UUID(int=7)
    (event,) = await outbox.publish(topic="orders.paid", key="k", tenant=tenant)
    await _deliver(outbox, "old-orders")
    await outbox.advance(timedelta(minutes=5))
    resend = await _resend(conn, "old")
    await _steps(conn, resend)
    row = await conn.fetchrow(
        """select o.event_id, o.event_topic, o.payload, o.ordering_key, o.tenant_id, o.id,
                  o.created_at = a.created_at as same_time, o.headers ->> 'penstock-resend' as mark
           from public.outbox o join public.outbox_archive a on a.id = o.event_id"""
    )
    assert row is not None
    assert (row["event_id"], row["event_topic"]) == (event, "orders.paid")
    assert (row["payload"], row["ordering_key"]) == ('{"n": 0}', "k")
    assert (row["tenant_id"], row["same_time"]) == (tenant, True)
    assert row["mark"] == str(resend)
    assert row["id"] != event
    deliveries = await conn.fetch(
        "select state from app.outbox_deliveries where event_id = $1", event
    )
    assert Counter(row["state"] for row in deliveries) == {"READY": 1, "DELIVERED": 1}


async def test_doing_a_step_again_after_the_end_sends_nothing(
    conn: Session, outbox: SqlOutbox
) -> None:
    await outbox.publish(3, topic="orders.paid")
    await _deliver(outbox, "old-orders")
    resend = await _resend(conn, "old")
    assert sum(await _steps(conn, resend)) == 3
    assert await _steps(conn, resend) == [0]


async def test_a_step_that_is_undone_is_done_again_from_the_same_place(
    conn: Session, outbox: SqlOutbox
) -> None:
    await outbox.publish(20, topic="orders.paid")
    first = await _deliver(outbox, "old-orders")
    resend = await _resend(conn, "old")
    await conn.fetch("select app.outbox_resend_step($1, 7)", resend)
    undone = conn.transaction()
    await undone.start()
    await conn.fetch("select app.outbox_resend_step($1, 7)", resend)
    await undone.rollback()
    await _steps(conn, resend, 7)
    assert await _deliver(outbox, "old-orders") == first


async def test_two_resends_of_the_same_do_not_double_what_is_on_its_way(
    conn: Session, outbox: SqlOutbox
) -> None:
    await outbox.publish(4, topic="orders.paid")
    await _deliver(outbox, "old-orders")
    assert sum(await _steps(conn, await _resend(conn, "old"))) == 4
    assert sum(await _steps(conn, await _resend(conn, "old"))) == 0
    await _deliver(outbox, "old-orders")
    assert sum(await _steps(conn, await _resend(conn, "old"))) == 4


async def test_only_missing_ones_are_sent_if_that_is_asked(
    conn: Session, outbox: SqlOutbox
) -> None:
    before = await outbox.publish(3, topic="orders.paid")
    await _deliver(outbox, "old-orders")
    await conn.execute(NEW_ROUTE)
    await outbox.publish(4, topic="orders.paid")
    await _deliver(outbox, "old-orders", "new-orders")
    assert sum(await _steps(conn, await _resend(conn, "old", missing=True))) == 0
    assert sum(await _steps(conn, await _resend(conn, missing=True))) == 3
    assert sorted(await _deliver(outbox, "new-orders")) == sorted(before)
    assert sum(await _steps(conn, await _resend(conn, missing=True))) == 0


async def test_events_without_any_route_can_be_filled_in_later(
    conn: Session, outbox: SqlOutbox
) -> None:
    await outbox.publish(2, topic="bills.sent")
    await _deliver(outbox)
    assert await conn.fetchval("select count(*) from app.outbox_all where state = 'NO_ROUTE'") == 2
    await conn.execute(NEW_ROUTE.replace("orders.*", "bills.*"))
    assert sum(await _steps(conn, await _resend(conn))) == 2


async def test_what_was_given_up_or_withdrawn_is_not_sent(conn: Session, outbox: SqlOutbox) -> None:
    discarded, cancelled, _ = await outbox.publish(3, topic="orders.paid")
    await conn.execute("select app.outbox_cancel($1, 'no')", cancelled)
    await conn.execute(
        "update public.outbox set pos = null, dead_at = penstock.clock() where id = $1", discarded
    )
    await conn.execute("select app.outbox_discard(array[$1::uuid], 'no')", discarded)
    await _deliver(outbox, "old-orders")
    assert sum(await _steps(conn, await _resend(conn, "old"))) == 1


async def test_topic_filter_and_route_filter_choose(conn: Session, outbox: SqlOutbox) -> None:
    for topic in ("orders.paid", "orders.sent"):
        await outbox.publish(4, topic=topic)
    await _deliver(outbox, "old-orders")
    await conn.execute(NEW_ROUTE.replace("null)", "'$.n >= 2')"))
    assert sum(await _steps(conn, await _resend(conn, topic="orders.paid"))) == 2
    assert sum(await _steps(conn, await _resend(conn, topic="*.sent"))) == 2
    assert sum(await _steps(conn, await _resend(conn, topic="nothing"))) == 0


async def test_chosen_ids_are_sent_whenever_they_were_delivered(
    conn: Session, outbox: SqlOutbox
) -> None:
    ids = await outbox.publish(5, topic="orders.paid")
    await _deliver(outbox, "old-orders")
    await outbox.advance(timedelta(days=3))
    resend = await _resend(conn, "old", since=None, ids=[ids[1], ids[3], UUID(int=1)])
    assert await _steps(conn, resend) == [2]
    assert await _deliver(outbox, "old-orders") == [ids[1], ids[3]]


async def test_the_time_range_is_kept(conn: Session, outbox: SqlOutbox) -> None:
    delivered: list[UUID] = []
    for _ in range(4):
        delivered += await outbox.publish(2, topic="orders.paid")
        await _deliver(outbox, "old-orders")
        await outbox.advance(timedelta(hours=30))
    resend = await conn.fetchval(
        """select app.outbox_resend('old', penstock.clock() - interval '100 hours',
           penstock.clock() - interval '40 hours', 'again')"""
    )
    assert sum(await _steps(conn, resend)) == 4
    assert await _deliver(outbox, "old-orders") == delivered[2:6]


async def test_events_of_one_moment_are_told_apart_by_their_number(
    conn: Session, outbox: SqlOutbox
) -> None:
    await outbox.publish(50, topic="orders.paid")
    first = await _deliver(outbox, "old-orders")
    await conn.execute(
        "update public.outbox_archive set delivered_at = date_trunc('second', clock_timestamp())"
        " - interval '1 s'"
    )
    resend = await _resend(conn, "old")
    steps = await _steps(conn, resend, 3)
    assert (sum(steps), max(steps)) == (50, 3)
    assert sorted(await _deliver(outbox, "old-orders")) == sorted(first)


async def test_a_step_does_not_read_the_whole_archive(conn: Session, outbox: SqlOutbox) -> None:
    await conn.execute(
        """insert into public.outbox_archive
               (seq, id, topic, payload, headers, created_at, lease_epoch, total_attempts,
                replay_count, state, delivered_at)
           select -n, gen_random_uuid(), 'orders.paid', '{}', '{}', penstock.clock(), 1, 1, 0,
                  'DELIVERED', penstock.clock() - interval '50 minutes' + n * interval '20 ms'
           from generate_series(1, 100000) n"""
    )
    await conn.execute("vacuum analyze public.outbox_archive")
    resend = await _resend(conn, "old", since=timedelta(minutes=49))
    await conn.fetch("select app.outbox_resend_step($1, 100)", resend)
    before = await _blocks_read(conn)
    await conn.fetch("select app.outbox_resend_step($1, 100)", resend)
    read = await _blocks_read(conn) - before
    pages = await conn.fetchval(
        "select sum(pg_relation_size(inhrelid)) / 8192 from pg_inherits"
        " where inhparent = 'public.outbox_archive'::regclass"
    )
    assert 0 < read < pages / 2


async def _blocks_read(conn: Session) -> int:
    await conn.execute("select pg_stat_force_next_flush()")
    blocks: int = await conn.fetchval(
        "select sum(heap_blks_read + heap_blks_hit)::bigint from pg_statio_all_tables"
        " where relname like 'outbox\\_archive\\_%'"
    )
    return blocks


async def test_nothing_is_added_while_the_destination_is_far_behind(
    conn: Session, outbox: SqlOutbox
) -> None:
    await outbox.publish(10, topic="orders.paid")
    await _deliver(outbox, "old-orders")
    resend = await _resend(conn, "old")
    step = "select sent, waiting, ended from app.outbox_resend_step($1, 4, 4)"
    assert tuple(await conn.fetchrow(step, resend) or ()) == (4, 0, False)
    assert tuple(await conn.fetchrow(step, resend) or ()) == (0, 4, False)
    await conn.execute("select penstock.pause_target('destination/old', 'down')")
    assert await conn.fetchval("select app.outbox_set_aside()") == 4
    assert tuple(await conn.fetchrow(step, resend) or ()) == (0, 4, False)
    await conn.execute("select penstock.resume_target('destination/old', 'up')")
    await conn.execute("update public.outbox set pos = 1000 + seq, next_attempt_at = null")
    await _deliver(outbox, "old-orders")
    assert tuple(await conn.fetchrow(step, resend) or ()) == (4, 0, False)


async def test_the_plan_counts_and_writes_nothing(conn: Session, outbox: SqlOutbox) -> None:
    await outbox.publish(3, topic="orders.paid")
    await outbox.publish(2, topic="bills.sent")
    await _deliver(outbox, "old-orders")
    await conn.execute("set role penstock_operator")
    rows = await conn.fetch(
        "select topic, route, events from app.outbox_resend_plan('old', "
        "penstock.clock() - interval '1 hour', null)"
    )
    await conn.execute("reset role")
    assert [tuple(row) for row in rows] == [
        ("bills.sent", None, 2),
        ("orders.paid", "old-orders", 3),
    ]
    assert await conn.fetchval("select count(*) from public.outbox") == 0
    assert await conn.fetchval("select count(*) from public.outbox_resends") == 0


@pytest.mark.parametrize(
    ("call", "code"),
    [
        ("app.outbox_resend('nobody', now() - interval '1 h', null, 'r')", "PN011"),
        ("app.outbox_resend('new', now() - interval '1 h', null, 'r')", "PN011"),
        ("app.outbox_resend('old', null, null, 'r')", "PN005"),
        ("app.outbox_resend('old', now(), now() - interval '1 h', 'r')", "PN005"),
        ("app.outbox_resend('old', now() - interval '1 h', null, '')", "PN205"),
        ("app.outbox_resend_step(gen_random_uuid())", "PN011"),
    ],
)
async def test_what_makes_no_sense_is_refused(
    conn: Session, outbox: SqlOutbox, call: str, code: str
) -> None:
    with pytest.raises(asyncpg.PostgresError) as refused:
        await conn.execute(f"select {call}")
    assert refused.value.sqlstate == code


async def test_what_is_committed_late_belongs_to_it(
    conn: Session, outbox: SqlOutbox, database_url: str
) -> None:
    """A row of the archive has the time of its statement, and is seen from its commit on."""
    await outbox.publish(2, topic="orders.paid")
    await conn.execute("select app.outbox_expand(1000)")
    first, second = await outbox.claim(2, topics=["old-orders"])
    await conn.execute(NEW_ROUTE)
    async with Stage(database_url) as stage:
        finishing, after = await stage.sessions("finishing", "after")
        await finishing.begin()
        await SqlOutbox(finishing.conn).finish([first])
        assert await outbox.finish([second]) == []
        resend = await _resend(conn)
        await after.begin()
        await after.run("lock table public.outbox_archive in row exclusive mode")
        step = "select sent, ended, waiting from app.outbox_resend_step($1)"
        row = await conn.fetchrow(step, resend)
        assert row is not None
        assert (row["sent"], row["ended"], row["waiting"]) == (0, False, 5000)
        await finishing.commit()
        assert sum(await _steps(conn, resend)) == 2, "who came later is not waited for"


async def test_a_worker_may_not_resend(conn: Session, outbox: SqlOutbox) -> None:
    await conn.execute("set role penstock_outbox_executor")
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await _resend(conn, "old")
    await conn.execute("reset role")
    await conn.execute("set role penstock_readonly")
    assert await conn.fetch("select * from public.outbox_resends") == []
