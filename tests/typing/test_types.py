"""Mistakes that a type checker must find: each marked line is an error, and no other line is."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import asyncpg
import psycopg
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from penstock import Attempt, Batch, Event, Penstock, Reject, Retry, Tx, Verdict
from penstock.testing import drain, perform, published

ps = Penstock("postgresql://localhost/shop")


@dataclass
class OrderPaid:
    order_id: int


@dataclass
class Refunded:
    order_id: int


class Mailer: ...


order_paid = ps.outbox.topic("orders.paid", OrderPaid)
refunded = ps.outbox.topic("orders.refunded", Refunded)
free = ps.outbox.topic("free", dict[str, Any])


@ps.resource
async def mailer() -> AsyncIterator[Mailer]:
    yield Mailer()


async def publish(
    tx: Tx,
    conn: "asyncpg.Connection[asyncpg.Record]",
    session: AsyncSession,
    blocking: "psycopg.Connection[tuple[Any, ...]]",
    old: Session,
) -> None:
    paid = OrderPaid(1)
    event: UUID = await order_paid.publish(tx, paid)
    await order_paid.publish(conn, paid, tenant=event, deliver_at=datetime.now(UTC))
    await order_paid.publish(session, paid, headers={"a": "b"})
    order_paid.publish_sync(blocking, paid)
    order_paid.publish_sync(old, paid)
    await order_paid.publish_many(conn, [paid])
    order_paid.publish_many_sync(blocking, [paid])
    await free.publish(tx, {"anything": 1})
    await ps.outbox.publish(tx, "free", {"a": [1, None]})
    await order_paid.publish(tx, Refunded(1))  # error: arg-type
    await order_paid.publish(tx, {"order_id": 1})  # error: arg-type
    await order_paid.publish(tx, paid, tenent=event)  # error: call-arg
    await order_paid.publish(tx, paid, deliver_at="tomorrow")  # error: arg-type
    await order_paid.publish_many(conn, [Refunded(1)])  # error: list-item
    order_paid.publish_many_sync(blocking, [Refunded(1)])  # error: list-item
    await order_paid.publish("connection", paid)  # error: arg-type
    await order_paid.publish(blocking, paid)  # error: arg-type
    order_paid.publish_sync(session, paid)  # error: arg-type
    await free.publish(tx, paid)  # error: arg-type


@order_paid.on(concurrency=20, timeout_s=5)
async def mail(event: Event[OrderPaid], post: Mailer, attempt: Attempt) -> Verdict | None:
    number: int = event.data.order_id
    name: str = event.data.order_id  # error: assignment
    event.data.missing  # error: attr-defined
    async with event.effect("mail") as effect:
        key: str = effect.key
    return Retry(reason=key) if number == 1 else None


@refunded.on()
def refund(event: Event[Refunded]) -> None: ...


@refunded.on_batch(100)
async def together(events: Batch[Refunded], tx: Tx) -> None:
    await tx.execute("select 1")
    await events[0].finish(tx)


@order_paid.on()  # error: arg-type
async def mistaken(event: Event[Refunded]) -> None: ...


@order_paid.on()  # error: arg-type
async def one_for_many(events: Batch[OrderPaid]) -> None: ...


@order_paid.on_batch(10)  # error: arg-type
async def many_for_one(event: Event[OrderPaid]) -> None: ...


order_paid.on(retries=3)  # error: call-arg


async def test(conn: "asyncpg.Connection[asyncpg.Record]") -> None:
    found: list[Event[OrderPaid]] = await published(conn, order_paid, order_id=1)
    wrong: list[Event[Refunded]] = await published(conn, order_paid)  # error: arg-type
    count: int = (await drain(ps, conn, only=["outbox"])).finished
    await drain(ps, only=["letters"])  # error: list-item
    assert await perform(mail, OrderPaid(1), post=Mailer()) == Reject("NO")
    with ps.override(Mailer, Mailer()):
        pass
    async with ps.transaction() as tx:
        await tx.fetchval("select $1", count, found, wrong)
"""

MARK = re.compile(r"# error: ([a-z-]+)$")
FOUND = re.compile(r"^[^:]+:(\d+): error: .*\[([a-z-]+)\]$")


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_the_checker_finds_every_mistake_and_nothing_else(tmp_path: Path) -> None:
    program = tmp_path / "shop.py"
    program.write_text(PROGRAM)
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--no-error-summary", program],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=170,
    )
    assert ran.returncode in (0, 1), ran.stderr
    wanted = {
        (number, found[1])
        for number, line in enumerate(PROGRAM.splitlines(), 1)
        if (found := MARK.search(line))
    }
    reported = {
        (int(found[1]), found[2])
        for line in ran.stdout.splitlines()
        if (found := FOUND.match(line))
    }
    assert reported == wanted, ran.stdout
