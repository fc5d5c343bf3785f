"""Relay tables tell the truth whatever happens to their events; prove sees where they do not."""

from datetime import timedelta
from pathlib import Path
from random import Random
from typing import TypeAlias
from uuid import UUID

import asyncpg
import pytest
from tests.support.outbox import Leased, SqlOutbox

import penstock.outbox

Session: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
FUNCTIONS = Path(penstock.outbox.__file__).parent / "sql" / "functions"
TABLE = "payments.outbox_transfers"
FOLLOW = "outbox_relay_follow"
PROVE = (
    "select invariant, subject, detail from app.outbox_prove_ends()"
    " union all select invariant, subject, detail from app.outbox_prove()"
)
# A break of a function, by what is replaced in it, and what is said of it.
MUTANTS = {
    "a release counts as a dispatch": (FOLLOW, "v_started := -1;", "v_started := 0;"),
    "what is given up was sent": (
        FOLLOW,
        "v_sent boolean := tg_op",
        "v_sent boolean := true or tg_op",
    ),
    "one given up of several is sent": (
        FOLLOW,
        "v_sent := not exists",
        "v_sent := true or not exists",
    ),
    "one of several is enough": (FOLLOW, "if v_sent and old.parent is not null", "if false"),
    "a failure is no failure": (FOLLOW, "v_status text := 'FAILED'", "v_status text := 'SENT'"),
    "a row without a route is nobody's": (
        "outbox_expand",
        "c.count = 0 and c.relay is null",
        "c.count = 0",
    ),
}


class Relayed(SqlOutbox):
    """Rows of a relay table, with two routes, one or none, and what happens to them."""

    def __init__(self, conn: Session, chance: Random) -> None:
        super().__init__(conn)
        self.chance = chance
        self.leases: list[Leased] = []

    async def prepare(self) -> None:
        """Routes by what is in the payload, and a pager."""
        await self.make_clock_settable()
        await self.conn.execute("select app.outbox_put_destination('d', 'stdout', '{}', 'test')")
        for route, fits in (("a", "$.n > 0"), ("b", "$.n > 1")):
            await self.conn.execute(
                "select app.outbox_put_route($1, 'payments.*', 'd', 'r',"
                " p_filter => $2::text::jsonpath)",
                *(route, fits),
            )
        await self.conn.execute("select app.outbox_put_route('p', 'penstock.alert', 'd', 'r')")

    async def insert(self) -> None:
        await self.conn.execute(
            f"insert into {TABLE} (payload, ordering_key) values ($1::text::jsonb, $2)",
            f'{{"n": {self.chance.randrange(3)}}}',
            self.chance.choice([None, None, "k"]),
        )
        await self.conn.execute("select app.outbox_expand()")

    async def take(self) -> None:
        self.leases += await self.claim(self.chance.randrange(1, 4), topics=["a", "b"])

    def some(self) -> list[Leased]:
        """Leases that are held, or were."""
        return [self.leases.pop(self.chance.randrange(len(self.leases)))] if self.leases else []

    async def deliver(self) -> None:
        await self.finish(self.some())

    async def spoil(self) -> None:
        await self.fail(self.some(), self.chance.choice(["retry", "retry", "reject", "unknown"]))

    async def give_back(self) -> None:
        await self.release(self.some())

    async def crash(self) -> None:
        await self.advance(timedelta(minutes=5))
        await self.tend(sweep=True)

    async def operate(self) -> None:
        verb = self.chance.choice(["replay", "discard"])
        dead: list[UUID] = (
            await self.conn.fetchval("select array_agg(id) from app.outbox_dead") or []
        )
        await self.conn.execute(f"select app.outbox_{verb}($1, 'r')", dead[:1])
        await self.conn.execute("select app.outbox_expand()")

    async def withdraw(self) -> None:
        ready = await self.conn.fetchval(
            "select id from public.outbox where pos is not null limit 1"
        )
        await self.conn.execute("select app.outbox_cancel($1, 'r')", ready)

    async def step(self) -> None:
        """Anything that can happen."""
        steps = [self.insert, self.insert, self.take, self.take, self.deliver, self.deliver]
        steps += [self.spoil, self.give_back, self.crash, self.operate, self.withdraw]
        await self.chance.choice(steps)()

    async def broken(self) -> list[str]:
        """What does not hold now."""
        return sorted({row["invariant"] for row in await self.conn.fetch(PROVE)})


async def _live(conn: Session, seed: int, steps: int) -> None:
    """Let anything happen, and look after every step; at the end everything is said for."""
    outbox = Relayed(conn, Random(seed))
    await outbox.prepare()
    for number in range(steps):
        await outbox.step()
        assert await outbox.broken() == [], f"after step {number}"
    for _ in range(12):
        await outbox.crash()
        await conn.execute("select app.outbox_expand()")
        await outbox.finish(await outbox.claim(topics=["a", "b"]))
    assert await outbox.broken() == []
    unsaid = f"""
        select r.id from {TABLE} r
        where r.status <> 'SENT'
          and not exists (select from relay.dead_letters d where d.id = r.id)
          and not exists (select from app.outbox_all e where r.id in (e.id, e.event_id)
                          and e.state in ('HELD', 'BEHIND', 'CANCELLED', 'DISCARDED'))"""
    assert await conn.fetch(unsaid) == [], "L1: sent, a dead letter, or in the hands of a person"
    untold = "select count(*) from relay.dead_letters where alerted_at is null"
    assert await conn.fetchval(untold) == 0, "L1: each dead letter is alerted"


@pytest.mark.parametrize(("seed", "steps"), [(1, 150), (2, 60), (3, 60)])
async def test_rows_of_relay_tables_tell_what_became_of_them(
    conn: Session, seed: int, steps: int
) -> None:
    await _live(conn, seed, steps)


@pytest.mark.parametrize("mutant", MUTANTS)
async def test_a_broken_relay_is_found(conn: Session, mutant: str) -> None:
    name, right, wrong = MUTANTS[mutant]
    source = (FUNCTIONS / f"{name}.sql").read_text("utf-8")
    assert right in source
    await conn.execute(source.replace(right, wrong))
    with pytest.raises((AssertionError, asyncpg.CheckViolationError)):
        await _live(conn, 1, 150)


async def test_a_row_without_a_route_is_a_dead_letter_until_it_has_one(conn: Session) -> None:
    outbox = Relayed(conn, Random(1))
    await outbox.prepare()
    row: UUID = await conn.fetchval(f"insert into {TABLE} (payload) values ('{{}}') returning id")
    await outbox.publish(1, topic="unknown")
    await conn.execute("select app.outbox_expand()")
    status = f"select status, retry_count, last_error from {TABLE}"
    found = await conn.fetchrow(status)
    assert found is not None
    assert tuple(found) == ("FAILED", 0, f"no route takes topic {TABLE}")
    (letter,) = await conn.fetch("select id, last_error, alerted_at from relay.dead_letters")
    assert letter["id"] == row
    assert letter["alerted_at"] is not None
    states = await conn.fetch("select topic, state from app.outbox_all order by seq")
    assert ("unknown", "NO_ROUTE") in [tuple(state) for state in states], "no table asks for that"
    await conn.execute("select app.outbox_put_route('c', 'payments.*', 'd', 'r')")
    await conn.execute("select app.outbox_replay(array[$1::uuid], 'it has a route now')", row)
    await conn.execute("select app.outbox_expand()")
    await outbox.finish(await outbox.claim(topics=["c"]))
    assert await conn.fetchval(f"select status from {TABLE}") == "SENT"
    assert await outbox.broken() == []


async def test_what_nobody_delivered_is_not_delivered(conn: Session) -> None:
    outbox = SqlOutbox(conn)
    (event,) = await outbox.publish(1)
    await outbox.finish(await outbox.claim())
    assert await conn.fetch(PROVE) == []
    await conn.execute("update public.outbox_archive set lease_token = null")
    (found,) = [row for row in await conn.fetch(PROVE) if row["invariant"] == "O3"]
    assert found["subject"] == f"event {event}"


@pytest.mark.parametrize("role", ["penstock_operator", "penstock_auditor"])
async def test_a_row_that_nobody_has_is_found(conn: Session, role: str) -> None:
    row: UUID = await conn.fetchval(f"insert into {TABLE} (payload) values ('{{}}') returning id")
    await conn.execute("alter table public.outbox disable trigger user; delete from public.outbox")
    await conn.execute(f"set role {role}")
    (found,) = await conn.fetch("select * from app.outbox_prove_ends()")
    assert (found["invariant"], found["subject"]) == ("L1", f"{TABLE} {row}")
