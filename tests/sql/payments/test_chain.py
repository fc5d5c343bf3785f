"""The chain of hashes over the attempts: whole, and it names the first link that is not."""

from datetime import timedelta
from typing import Any

import asyncpg
import pytest
from tests.support.payments import SqlPayments

from penstock.payments import chain


async def _broken(payments: SqlPayments) -> list[tuple[Any, ...]]:
    rows = await payments.conn.fetch(
        "select participant_id, link_no, problem from verify_payment_chain() order by 1"
    )
    return [tuple(row) for row in rows]


async def _made(payments: SqlPayments) -> None:
    """Two participants with two finished payments each, all linked."""
    await payments.fill(4, 2)
    while flights := await payments.claim():
        await payments.finish(flights)
    assert await payments.conn.fetchval("select extend_payment_chain()") == 8


async def test_every_attempt_gets_one_link_per_participant_in_a_row(payments: SqlPayments) -> None:
    await _made(payments)
    assert await payments.conn.fetchval("select extend_payment_chain()") == 0
    links = await payments.conn.fetch(
        "select participant_id, link_no from payment_chain order by 1, 2"
    )
    assert [tuple(row) for row in links] == [
        (participant, number) for participant in ("q00000", "q00001") for number in range(1, 5)
    ]
    assert await _broken(payments) == []
    await payments.conn.execute("set timezone = 'Asia/Tokyo'")
    assert await _broken(payments) == [], "whatever the time zone of the reader"


async def test_the_job_links_all_there_is_and_not_one_batch_of_it(payments: SqlPayments) -> None:
    await payments.fill(4, 2)
    while flights := await payments.claim():
        await payments.finish(flights)
    assert await chain.extend(payments.conn, batch=3) == 8
    assert await payments.conn.fetchval("select extend_payment_chain()") == 0


async def test_new_attempts_follow_from_the_last_link(payments: SqlPayments) -> None:
    await _made(payments)
    await payments.enqueue("q00001")
    await payments.finish(await payments.claim())
    assert await payments.conn.fetchval("select extend_payment_chain()") == 2
    assert await _broken(payments) == []


@pytest.mark.parametrize(
    ("attack", "problem"),
    [
        ("update payment_outbox_attempts set rail_reference = 'x'", "its attempt was changed"),
        (
            'update payment_outbox_attempts set payload = payload || \'{"amount": "1"}\'',
            "its attempt was changed",
        ),
        ("delete from payment_outbox_attempts", "its attempt is gone"),
    ],
)
async def test_a_superuser_who_goes_round_the_triggers_is_found_out(
    payments: SqlPayments, attack: str, problem: str
) -> None:
    await _made(payments)
    conn = payments.conn
    transaction = conn.transaction()
    await transaction.start()
    await conn.execute("alter table payment_outbox_attempts disable trigger all")
    third = "(select attempt_id from payment_chain where link_no = 3 and participant_id = 'q00001')"
    await conn.execute(attack + " where attempt_id = " + third)
    assert await _broken(payments) == [("q00001", 3, problem)]
    await transaction.rollback()


@pytest.mark.parametrize(
    ("attack", "expected"),
    [
        (
            "delete from payment_chain where link_no = 2 and participant_id = 'q00000'",
            ("q00000", 3, "a link before this one is missing"),
        ),
        (
            "update payment_chain set hash = sha256('x') "
            "where link_no = 2 and participant_id = 'q00000'",
            ("q00000", 2, "its attempt was changed"),
        ),
        (
            "update payment_chain set prev_hash = sha256('x') "
            "where link_no = 1 and participant_id = 'q00000'",
            ("q00000", 1, "it does not follow from the link before"),
        ),
    ],
)
async def test_a_chain_that_was_tampered_with_names_its_first_broken_link(
    payments: SqlPayments, attack: str, expected: tuple[Any, ...]
) -> None:
    await _made(payments)
    conn = payments.conn
    transaction = conn.transaction()
    await transaction.start()
    await conn.execute("alter table payment_chain disable trigger all")
    await conn.execute(attack)
    assert await _broken(payments) == [expected]
    await transaction.rollback()


async def test_an_attempt_slipped_in_below_the_floor_is_found(payments: SqlPayments) -> None:
    await _made(payments)
    conn = payments.conn
    # Two runs: the first takes a mark, the second raises the floor to it.
    for _ in range(2):
        await conn.execute("update penstock_payments.chain_mark set mark_id = penstock.uuidv7()")
        await conn.fetchval("select extend_payment_chain()")
    transaction = conn.transaction()
    await transaction.start()
    await conn.execute(
        """insert into payment_outbox_attempts (attempt_id, outbox_id, instruction_id,
               participant_id, sequence_id, idempotency_key, rail_type, payload, attempt_no, state)
           select '00000000-0000-7000-8000-000000000000', outbox_id, instruction_id,
                  participant_id, sequence_id, idempotency_key, rail_type, payload, 9, 'FAILED'
           from payment_outbox_attempts limit 1"""
    )
    assert [problem[2] for problem in await _broken(payments)] == ["this attempt was never linked"]
    await transaction.rollback()


async def test_an_open_transaction_keeps_the_floor_down(
    database_url: str, payments: SqlPayments
) -> None:
    conn = payments.conn
    await payments.enqueue("slow")
    transaction = conn.transaction()
    await transaction.start()
    await payments.claim()
    other = await asyncpg.connect(database_url)
    for _ in range(4):
        await other.execute("select extend_payment_chain()")
    await transaction.commit()
    assert await other.fetchval("select extend_payment_chain()") == 1
    await other.close()
    await payments.advance(timedelta(seconds=1))
    assert await _broken(payments) == []
