"""Alerts of payments: nobody is held in silence, and no alert keeps a payment from its end."""

from datetime import timedelta

import asyncpg
import pytest
from tests.support.payments import Connection, SqlPayments

SOMEBODY_ELSES_APP = "drop schema app cascade; create schema app"
PAGER = """
insert into public.outbox_destinations (name, kind) values ('pager', 'http');
insert into public.outbox_routes (route, topic, destination)
values ('alerts', 'penstock.alert', 'pager')
"""
ROBBER = """
drop schema app cascade;
create schema app authorization penstock_readonly;
create table public.loot (who text);
grant insert on public.loot to public;
set role penstock_readonly;
grant usage on schema app to public;
create function app.outbox_alert_items(text, uuid[], text[], text[], text[], text[])
returns void language sql as 'insert into public.loot values (current_user::text)';
reset role
"""


async def test_a_schema_app_of_somebody_else_does_not_stop_payments(payments: SqlPayments) -> None:
    await payments.conn.execute(SOMEBODY_ELSES_APP)
    await payments.enqueue()
    flights = await payments.claim()
    assert await payments.finish(flights, "FAILED", code="REJECTED") == ["FAILED"]


async def test_nor_the_reaper_of_all_leases(payments: SqlPayments) -> None:
    await payments.conn.execute(SOMEBODY_ELSES_APP)
    await payments.config(max_attempts=2)
    await payments.enqueue("p1")
    await payments.claim()
    await payments.advance(timedelta(minutes=10))
    assert await payments.reap() == ["ZOMBIE_REQUEUE"]
    await payments.enqueue("p2")
    assert len(await payments.claim()) == 2
    await payments.advance(timedelta(minutes=10))
    assert await payments.reap() == ["FAILED", "ZOMBIE_REQUEUE"]


async def test_a_function_of_somebody_else_does_not_run_as_the_owner(conn: Connection) -> None:
    await conn.execute(ROBBER)
    payments = SqlPayments(conn)
    await payments.enqueue()
    await payments.finish(await payments.claim(), "FAILED", code="REJECTED")
    assert await conn.fetch("select who from public.loot") == []


async def test_a_payment_held_because_its_key_is_forgotten_is_alerted(
    payments: SqlPayments,
) -> None:
    await payments.conn.execute(PAGER)
    await payments.rail("ach", idempotent=True, idempotency_window="1 hour", timeout_ms=30000)
    await payments.enqueue()
    flights = await payments.claim()
    assert await payments.send(flights)
    await payments.finish(flights, "RETRYABLE", delay_s=0)
    flights = await payments.claim()
    await payments.advance(timedelta(hours=2))
    assert await payments.send(flights) == set()
    assert (
        await payments.conn.fetchval(
            "select count(*) from public.outbox where topic = 'penstock.alert'"
        )
        == 1
    )


async def test_what_may_be_sent_is_not_held_at_once(payments: SqlPayments) -> None:
    await payments.rail("ach", idempotent=True, idempotency_window="1 hour", timeout_ms=30000)
    await payments.conn.execute(
        "alter table public.payment_rails drop constraint payment_rails_window_outlasts_call;"
        " update public.payment_rails set idempotency_window = '20 seconds'"
    )
    await payments.fill(2, 2)
    one, two = await payments.claim()
    await payments.release([two])
    assert await payments.send([one, two]) == {one.id}
    held = "select held_at from public.payment_outbox_inflight where outbox_id = $1"
    assert await payments.conn.fetchval(held, one.id) is None


async def test_a_window_that_ends_during_a_call_is_refused(payments: SqlPayments) -> None:
    values = '{"idempotent": true, "idempotency_window": "20 seconds", "timeout_ms": 30000}'
    with pytest.raises(asyncpg.InvalidParameterValueError, match="not longer than its time limit"):
        await payments.conn.execute(
            "select public.put_payment_rail('ach', $1::jsonb, 'a test')", values
        )
