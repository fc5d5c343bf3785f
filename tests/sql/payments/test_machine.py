"""A random walk through every verb: the invariants hold after each step, and it comes to rest."""

import json
import random
from collections.abc import Awaitable, Callable
from datetime import timedelta
from uuid import UUID

import asyncpg
import pytest
from tests.support.payments import KEYED, PAYLOAD, Flight, SqlPayments

STEPS = 220
PARTICIPANTS = ("a", "b", "c")
RAILS = ("keyed", "plain", "strict")
REFUSALS = {"PN505", "PN506", "22023", "PN201"}


class Walk:
    """Verbs with random arguments, and what a rail would have seen."""

    def __init__(self, payments: SqlPayments, seed: int) -> None:
        self.sql = payments
        self.draw = random.Random(seed)
        self.payments: list[UUID] = []
        self.flights: list[Flight] = []
        self.sent: dict[UUID, int] = {}
        self.rails: dict[UUID, str] = {}

    async def enqueue(self) -> None:
        number = self.draw.randrange(1, 60)
        rail, participant = RAILS[number % 3], PARTICIPANTS[number % 2 + number % 3 // 2]
        payload = PAYLOAD if self.draw.random() < 0.9 else PAYLOAD.replace("10.50", "11")
        payment = await self.sql.enqueue(
            participant, instruction=f"n{number}", rail=rail, payload=payload
        )
        self.rails[payment] = rail
        if payment not in self.payments:
            self.payments.append(payment)

    async def claim(self) -> None:
        self.flights += await self.sql.claim(self.draw.randrange(1, 4))
        self.flights = self.flights[-8:]

    async def send(self) -> None:
        if self.flights:
            flight = self.draw.choice(self.flights)
            for payment in await self.sql.send([flight]):
                self.sent[payment] = self.sent.get(payment, 0) + 1

    async def finish(self) -> None:
        if self.flights:
            flight = self.draw.choice(self.flights)
            state = self.draw.choice(["DISPATCHED", "RETRYABLE", "FAILED", "UNKNOWN", "HELD"])
            await self.sql.finish([flight], state, delay_s=self.draw.choice([0, 5]))

    async def finish_and_claim(self) -> None:
        if self.flights:
            flight = self.draw.choice(self.flights)
            state = self.draw.choice(["DISPATCHED", "RETRYABLE", "FAILED", "UNKNOWN", "HELD"])
            delay_s = self.draw.choice([0, 5])
            if state == "DISPATCHED":
                _, claims = await self.sql.paid_and_claim([flight])
            else:
                _, claims = await self.sql.finish_and_claim([flight], state, delay_s=delay_s)
            self.flights = (self.flights + claims)[-8:]

    async def release(self) -> None:
        if self.flights:
            await self.sql.release([self.draw.choice(self.flights)])

    async def reap(self) -> None:
        await self.sql.reap()

    async def wait(self) -> None:
        await self.sql.advance(timedelta(seconds=self.draw.choice([1, 10, 61, 3600, 90_000])))

    async def operate(self) -> None:
        if not self.payments:
            return
        payment = self.draw.choice(self.payments)
        conn = self.sql.conn
        match self.draw.randrange(6):
            case 0:
                await conn.fetch("select replay_payment($1, 'ann', 'r')", payment)
            case 1:
                await conn.fetch("select * from payment_discard(array[$1::uuid], 'r')", payment)
            case 2:
                await conn.fetch("select cancel_payment($1, 'r')", payment)
            case 3:
                await conn.fetch("select hold_payment($1, 'r')", payment)
            case _:
                resolution = self.draw.choice(["dispatched", "not_paid", "failed"])
                await conn.fetch("select resolve_payment($1, $2, 'r')", payment, resolution)

    async def link(self) -> None:
        await self.sql.conn.fetch("select extend_payment_chain()")

    async def step(self) -> None:
        """One random verb; refusals that the contract names are answers, anything else is not."""
        verbs: list[tuple[Callable[[], Awaitable[None]], int]] = [
            (self.enqueue, 4),
            (self.claim, 6),
            (self.send, 5),
            (self.finish, 4),
            (self.finish_and_claim, 4),
            (self.release, 1),
            (self.reap, 2),
            (self.wait, 3),
            (self.operate, 4),
            (self.link, 1),
        ]
        (verb,) = self.draw.choices([v for v, _ in verbs], [weight for _, weight in verbs])
        try:
            await verb()
        except asyncpg.PostgresError as error:
            if error.sqlstate not in REFUSALS:
                raise

    async def quiesce(self) -> None:
        """Faults stop: held ones are resolved, everything open is worked off."""
        for _ in range(60):
            await self.sql.advance(timedelta(minutes=2))
            await self.sql.reap()
            held = await self.sql.conn.fetch(
                "select id from penstock.dead_letters where state = 'HELD'"
            )
            for row in held:
                await self.sql.conn.fetch("select resolve_payment($1, 'not_paid', 'r')", row["id"])
            flights = await self.sql.claim()
            await self.sql.send(flights)
            if flights:
                await self.sql.finish(flights)
            if not flights and not held:
                return
        raise AssertionError("it does not come to rest")


@pytest.mark.parametrize("seed", range(6))
async def test_the_invariants_hold_at_every_step(payments: SqlPayments, seed: int) -> None:
    await payments.rail("keyed", **KEYED)
    await payments.rail("strict", on_failed="block", idempotent=False)
    await payments.config(max_attempts=4)
    walk = Walk(payments, seed)
    for number in range(STEPS):
        await walk.step()
        assert await payments.violations() == [], f"seed {seed}, step {number}"
    blocking = await payments.conn.fetch("select outbox_id from penstock_payments.dead_letters")
    await payments.conn.fetch("select * from payment_discard($1, 'r')", [r[0] for r in blocking])
    await walk.quiesce()
    open_ones = await payments.conn.fetchval(
        "select count(*) from payment_outbox_registry where terminal_state is null"
    )
    assert open_ones == 0
    await payments.conn.fetch("select extend_payment_chain()")
    assert await payments.conn.fetch("select * from verify_payment_chain()") == []
    audited = await payments.conn.fetch(
        """select count(*) filter (where operation = 'replay') as replays,
                  (select sum(replay_count) from payment_outbox_registry) as counted
           from audit.audit_logs"""
    )
    assert audited[0]["replays"] == (audited[0]["counted"] or 0)
    assert len(walk.payments) > 5, json.dumps(walk.sent, default=str)
