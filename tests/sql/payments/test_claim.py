"""claim_payment_outbox: heads only, in sequence, bounded, pausable, in one statement."""

import asyncio
import json
from datetime import timedelta
from itertools import pairwise
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from tests.support.payments import CLAIM, Connection, SqlPayments


async def test_a_claim_moves_the_row_and_records_the_dispatch(payments: SqlPayments) -> None:
    payment = await payments.enqueue()
    (flight,) = await payments.claim()
    assert (flight.id, flight.attempt_no, flight.attempt, flight.epoch) == (payment, 1, 1, 1)
    assert await payments.attempts(payment) == [(1, "DISPATCHING", None)]
    pending = await payments.conn.fetchval("select count(*) from payment_outbox_pending")
    row = await payments.conn.fetchrow("select * from payment_outbox_inflight")
    assert row is not None
    assert (pending, row["outbox_id"], row["lease_token"]) == (0, payment, flight.token)


async def test_an_undone_claim_leaves_everything_as_it_was(
    database_url: str, payments: SqlPayments
) -> None:
    payment = await payments.enqueue()
    other = await asyncpg.connect(database_url)
    transaction = other.transaction()
    await transaction.start()
    assert len(await other.fetch(CLAIM)) == 1
    await transaction.rollback()
    await other.close()
    assert await payments.attempts(payment) == []
    assert await payments.state(payment) == "PENDING"


async def test_only_the_head_of_a_participant_is_claimed(payments: SqlPayments) -> None:
    first, second = [await payments.enqueue("p") for _ in range(2)]
    (flight,) = await payments.claim()
    assert flight.id == first
    assert await payments.claim() == [], "the second waits while the first is in flight"
    await payments.finish([flight], "RETRYABLE", delay_s=60)
    assert await payments.claim() == [], "and while it waits for its next attempt"
    await payments.advance(timedelta(seconds=61))
    (again,) = await payments.claim()
    assert (again.id, again.attempt_no, again.attempt) == (first, 3, 2)
    await payments.finish([again])
    assert [f.id for f in await payments.claim()] == [second]


async def test_one_claim_takes_the_head_of_every_participant(payments: SqlPayments) -> None:
    await payments.fill(9, 3)
    assert [(f.participant, f.sequence) for f in await payments.claim()] == [
        ("q00000", 1),
        ("q00001", 1),
        ("q00002", 1),
    ]


async def test_leasing_looks_again_whether_a_row_is_a_head(payments: SqlPayments) -> None:
    """Between the walk and the lease a lower number may have come back."""
    first, second = [await payments.enqueue("p") for _ in range(2)]
    lease = "select outbox_id from penstock_payments.lease_heads($1, null, 60)"
    assert await payments.conn.fetch(lease, [second]) == []
    assert [row[0] for row in await payments.conn.fetch(lease, [first])] == [first]
    assert await payments.conn.fetch(lease, [second]) == [], "its participant is in flight"


async def test_a_held_payment_keeps_its_participant_waiting(payments: SqlPayments) -> None:
    await payments.hold("p")
    await payments.enqueue("p")
    other = await payments.enqueue("q")
    assert [f.id for f in await payments.claim()] == [other]


@pytest.mark.parametrize("on_failed", ["skip", "block"])
async def test_a_failed_payment_skips_or_blocks_as_its_rail_says(
    payments: SqlPayments, on_failed: str
) -> None:
    await payments.rail("ach", on_failed=on_failed)
    failed = await payments.fail("p")
    following = await payments.enqueue("p")
    claimed = [f.id for f in await payments.claim()]
    assert claimed == ([following] if on_failed == "skip" else [])
    if on_failed == "block":
        await payments.conn.fetch("select * from payment_discard(array[$1::uuid], 'r')", failed)
        assert [f.id for f in await payments.claim()] == [following]


async def test_pauses_of_queue_rail_and_participant(payments: SqlPayments) -> None:
    conn = payments.conn
    for participant, rail in (("a", "ach"), ("b", "sepa"), ("c", "ach")):
        await payments.enqueue(participant, rail=rail)
    await conn.execute("select penstock.pause_target('payments', 'r')")
    assert await payments.claim() == []
    await conn.execute("select penstock.resume_target('payments', 'r')")
    await conn.execute("select penstock.pause_target('rail/sepa', 'r')")
    await conn.execute("select penstock.pause_target('participant/c', 'r')")
    assert [f.participant for f in await payments.claim()] == ["a"]
    await conn.execute("select penstock.resume_target('rail/sepa', 'r')")
    await conn.execute("select penstock.resume_target('participant/c', 'r')")
    assert [f.participant for f in await payments.claim()] == ["b", "c"]


async def test_rails_can_be_chosen_and_left_out(payments: SqlPayments) -> None:
    for participant, rail in (("a", "ach"), ("b", "sepa"), ("c", "wire")):
        await payments.enqueue(participant, rail=rail)
    assert [f.participant for f in await payments.claim(rails=["ach", "sepa"], skip=["ach"])] == [
        "b"
    ]
    assert [f.participant for f in await payments.claim()] == ["a", "c"]


async def test_a_rail_bounds_what_is_in_flight(database_url: str, payments: SqlPayments) -> None:
    await payments.rail("ach", max_concurrency=3)
    await payments.fill(40, 40)
    await payments.enqueue("free", rail="sepa")
    pool = await asyncpg.create_pool(database_url, min_size=4, max_size=4)
    async with pool:
        await asyncio.gather(*(pool.fetch(CLAIM) for _ in range(12)))
    rows = await payments.conn.fetch(
        "select rail_type, count(*) from payment_outbox_inflight group by 1 order by 1"
    )
    assert [tuple(row) for row in rows] == [("ach", 3), ("sepa", 1)]


async def test_the_walk_goes_on_where_it_ended_and_wraps(payments: SqlPayments) -> None:
    for name in "abcde":
        await payments.enqueue(name)
    after, seen = "b", []
    for _ in range(3):
        rows = await payments.conn.fetch(
            "select participant_id, cursor_at from claim_payment_outbox(2, p_after => $1)", after
        )
        seen += [row["participant_id"] for row in rows]
        after = rows[-1]["cursor_at"]
    assert seen == ["c", "d", "e", "a", "b"]
    assert await payments.claim() == []


async def test_a_walk_cut_short_says_where_to_go_on(payments: SqlPayments) -> None:
    await payments.fill(150, 150)
    await payments.finish(await payments.claim(1000), "RETRYABLE", delay_s=600)
    last = await payments.enqueue("zz")
    rows = await payments.conn.fetch("select * from claim_payment_outbox(10, p_probes => 100)")
    assert [(row["outbox_id"], row["cursor_at"]) for row in rows] == [(None, "q00099")]
    claimed = await payments.claim(10, after="q00099", probes=100)
    assert [f.id for f in claimed] == [last]


async def test_limits_are_clamped(payments: SqlPayments) -> None:
    await payments.fill(1100, 1100)
    assert len(await payments.claim(0)) == 1
    assert len(await payments.claim(-5)) == 1
    assert len(await payments.claim(10**6)) == 1000


async def test_workers_share_no_payment_and_keep_the_order(
    database_url: str, payments: SqlPayments
) -> None:
    await payments.fill(300, 7)
    order: dict[str, list[int]] = {}
    pool = await asyncpg.create_pool(database_url, min_size=5, max_size=5)

    async def work() -> int:
        count = 0
        async with pool.acquire() as conn:
            mine = SqlPayments(conn)
            while flights := await mine.claim(3):
                for flight in flights:
                    order.setdefault(flight.participant, []).append(flight.sequence)
                await mine.finish(flights)
                count += len(flights)
        return count

    async with pool:
        while sum(await asyncio.gather(*(work() for _ in range(5)))):
            pass
    assert sum(map(len, order.values())) == 300
    assert all(a < b for numbers in order.values() for a, b in pairwise(numbers))


async def test_the_number_of_an_attempt_comes_from_the_row_not_from_the_archive(
    conn: Connection,
) -> None:
    payments = SqlPayments(conn)
    payment = await payments.enqueue()
    await conn.execute("update payment_outbox_pending set attempt_count = 6, uncounted = 6")
    (flight,) = await payments.claim()
    assert (flight.id, flight.attempt_no, flight.attempt) == (payment, 7, 1)


async def test_a_claim_costs_the_same_however_many_wait_behind_one_participant(
    conn: Connection,
) -> None:
    payments = SqlPayments(conn)
    await payments.fill(12_000, 1)
    await conn.execute("analyze payment_outbox_pending")
    plans: list[str] = []
    conn.add_log_listener(lambda _, message: plans.append(str(message.message)))
    await conn.execute("load 'auto_explain'")
    for setting in (
        "auto_explain.log_min_duration = 0",
        "auto_explain.log_nested_statements = on",
        "auto_explain.log_analyze = on",
        "auto_explain.log_format = json",
        "client_min_messages = log",
    ):
        await conn.execute(f"set {setting}")
    assert len(await payments.claim(500)) == 1
    await conn.execute("set client_min_messages = error")
    nodes = [node for plan in plans for node in _nodes(json.loads(plan[plan.index("{") :])["Plan"])]
    on_pending = [n for n in nodes if n.get("Relation Name") == "payment_outbox_pending"]
    assert {n["Node Type"] for n in on_pending} <= {
        "Index Scan",
        "Index Only Scan",
        "Tid Scan",
        "ModifyTable",
    }
    rows = [n["Actual Rows"] + n.get("Rows Removed by Filter", 0) for n in on_pending]
    assert rows
    assert max(rows) <= 2


def _nodes(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [plan, *(node for each in plan.get("Plans", []) for node in _nodes(each))]


async def test_every_lease_has_a_token_of_its_own(payments: SqlPayments) -> None:
    await payments.fill(200, 200)
    tokens = {f.token for f in await payments.claim(1000)}
    assert len(tokens) == 200
    assert UUID(int=0) not in tokens
