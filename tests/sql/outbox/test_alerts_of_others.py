"""Dead letters of intake, payments and inbox raise the alert that those of the outbox raise."""

import json
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, TypeAlias

import asyncpg
import pytest
from tests.support.inbox import SqlInbox, arrival
from tests.support.intake import POOL, SqlIntake
from tests.support.payments import SqlPayments

Session: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
Death: TypeAlias = Callable[[Session], Awaitable[tuple[str, str, str, str]]]
ROUTE = """
insert into public.outbox_destinations (name, kind) values ('pager', 'http');
insert into public.outbox_routes (route, topic, destination)
values ('alerts', 'penstock.alert', 'pager');
"""


async def _inbox(conn: Session) -> SqlInbox:
    inbox = SqlInbox(conn)
    await inbox.make_clock_settable()
    await inbox.send(await inbox.source(), "e1", kind="paid")
    return inbox


async def _rejected_webhook(conn: Session) -> tuple[str, str, str, str]:
    inbox = await _inbox(conn)
    await inbox.fail(await inbox.claim(), "reject")
    return "inbox", "stripe/paid", "DEAD", "BROKEN"


async def _unknown_webhook(conn: Session) -> tuple[str, str, str, str]:
    inbox = await _inbox(conn)
    await inbox.fail(await inbox.claim(), "unknown", code="UNKNOWN")
    return "inbox", "stripe/paid", "HELD", "UNKNOWN"


async def _webhook_that_kills_its_workers(conn: Session) -> tuple[str, str, str, str]:
    inbox = await _inbox(conn)
    await inbox.policy(max_attempts=1)
    assert len(await inbox.claim()) == 1
    await inbox.advance(timedelta(minutes=5))
    assert (await inbox.tend())[0] == 1
    return "inbox", "stripe/paid", "DEAD", "ZOMBIE_LIMIT"


async def _webhook_that_postgres_cannot_hold(conn: Session) -> tuple[str, str, str, str]:
    inbox = SqlInbox(conn)
    source = await inbox.source()
    await inbox.receive(arrival(source, "e1", kind="paid", payload=None))
    return "inbox", "stripe/paid", "DEAD", "payload_unrepresentable"


async def _webhook_ended_by_hand(conn: Session) -> tuple[str, str, str, str]:
    await _inbox(conn)
    await conn.execute("update webhook_events set status = 'dead_letter', error_code = 'by_hand'")
    return "inbox", "stripe/paid", "DEAD", "by_hand"


async def _failed_payment(conn: Session) -> tuple[str, str, str, str]:
    await SqlPayments(conn).fail()
    return "payments", "ach", "DEAD", "REJECTED"


async def _held_payment(conn: Session) -> tuple[str, str, str, str]:
    await SqlPayments(conn).hold()
    return "payments", "ach", "HELD", "UNKNOWN"


async def _payment_that_kills_its_workers(conn: Session) -> tuple[str, str, str, str]:
    payments = SqlPayments(conn)
    await payments.make_clock_shiftable()
    await payments.config(max_attempts=1)
    await payments.enqueue()
    assert len(await payments.claim()) == 1
    await payments.advance(timedelta(minutes=10))
    assert await payments.reap() == ["FAILED"]
    return "payments", "ach", "DEAD", "ZOMBIE_LIMIT"


async def _rejected_reservation(conn: Session) -> tuple[str, str, str, str]:
    intake = SqlIntake(conn)
    await intake.stock(1)
    await intake.reserve("ann")
    (row,) = await intake.claim()
    assert await intake.reject(row) is not None
    return "intake", POOL, "DEAD", "TEST"


DEATHS: list[Death] = [
    _rejected_webhook,
    _unknown_webhook,
    _webhook_that_kills_its_workers,
    _webhook_that_postgres_cannot_hold,
    _webhook_ended_by_hand,
    _failed_payment,
    _held_payment,
    _payment_that_kills_its_workers,
    _rejected_reservation,
]


async def _alerts(conn: Session) -> list[dict[str, Any]]:
    rows = await conn.fetch(
        "select payload::text from public.outbox where topic = 'penstock.alert'"
    )
    return [json.loads(row["payload"]) for row in rows]


@pytest.mark.parametrize("death", DEATHS, ids=lambda death: death.__name__[1:])
async def test_the_alert_comes_with_the_death(conn: Session, death: Death) -> None:
    await conn.execute(ROUTE)
    said = await death(conn)
    (alert,) = await _alerts(conn)
    assert tuple(alert[name] for name in ("queue", "topic", "state", "error_code")) == said
    (letter,) = await conn.fetch(
        "select id, fingerprint from penstock.dead_letters where queue = $1", said[0]
    )
    assert alert["examples"] == [str(letter["id"])]
    assert alert["fingerprint"] == letter["fingerprint"]


async def test_what_is_undone_has_no_alert(conn: Session) -> None:
    await conn.execute(ROUTE)
    inbox = await _inbox(conn)
    items = await inbox.claim()
    undone = conn.transaction()
    await undone.start()
    await inbox.fail(items, "reject")
    assert len(await _alerts(conn)) == 1
    await undone.rollback()
    assert await _alerts(conn) == []


async def test_without_an_outbox_letters_are_dead_and_nobody_is_told(conn: Session) -> None:
    await conn.execute("drop schema app cascade")
    inbox = await _inbox(conn)
    await inbox.fail(await inbox.claim(), "reject")
    assert await inbox.status("e1") == "dead_letter"


async def test_what_an_operator_holds_is_not_alerted(conn: Session) -> None:
    await conn.execute(ROUTE)
    payment = await SqlPayments(conn).enqueue()
    await conn.execute("select hold_payment($1, 'to ask the bank')", payment)
    assert await _alerts(conn) == []


@pytest.mark.parametrize("message", ['{"original_msg_id": "x"}', '"text"', "[]", "7"])
async def test_whatever_a_message_of_intake_is_it_can_be_dead(conn: Session, message: str) -> None:
    await conn.execute("select pgmq.send('intake_queue', $1::jsonb)", message)
    row = await conn.fetchrow("select msg_id, read_ct from intake_queue_read(30, 10)")
    assert row is not None
    routed = "select intake_route_to_dlq($1, '{}', $2)"
    assert await conn.fetchval(routed, row["msg_id"], row["read_ct"]) is not None
