"""A storm over payments: relayers killed and stopped, connections lost, rails failing, leases over.

Real processes, two rails over HTTP with books of their own. The seed is printed and can be given.
`make storm` runs the full size, 20,000 payments of 200 participants; `make storm SEED=7` repeats.
"""

import asyncio
import json
import os
import signal
import sys
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from random import Random, SystemRandom
from time import monotonic
from uuid import UUID, uuid4

import aiohttp
import asyncpg
import pytest
from tests.support.payments import ENQUEUE, Session, SqlPayments
from tests.support.rails import IBAN
from tests.support.relayers import Relayers, relaying
from tests.support.waiting import until
from tests.support.workers import WorkerProcess

from penstock.payments import chain, store
from penstock.payments.errors import PaymentStateMismatch
from penstock.payments.model import Resolution
from penstock.payments.simulator import Faults, Simulator

pytestmark = [pytest.mark.fault, pytest.mark.slow]

PAYMENTS = int(os.environ.get("TEST_PAYMENTS", "1500"))
PARTICIPANTS = int(os.environ.get("TEST_PARTICIPANTS", "40"))
FULL = PAYMENTS > 5000
FAULTS = Faults(
    busy=0.04,
    refused=0.01,
    lost_before=0.02,
    lost_after=0.02,
    slow_after=0.002,
    slow_s=1.3,
)
LEASE_AND_MORE = timedelta(seconds=75)
END_WITHIN_S = 900.0 if FULL else 90.0


@dataclass(slots=True)
class Told:
    """What the storm was told to do and what was answered: the test's own record."""

    ids: dict[tuple[str, str], UUID] = field(default_factory=dict)
    invalid: set[UUID] = field(default_factory=set)
    happened: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class Storm:
    """One run."""

    relayers: Relayers
    random: Random
    told: Told = field(default_factory=Told)
    fleet: list[WorkerProcess] = field(default_factory=list)

    async def enqueue(self) -> None:
        """Enqueue everything, some of it several times at once, over connections that may break."""
        numbers = list(range(PAYMENTS))
        self.random.shuffle(numbers)
        parts = [numbers[start::4] for start in range(4)]
        await asyncio.gather(*(self._enqueue(part) for part in parts))

    async def _enqueue(self, numbers: list[int]) -> None:
        conn: asyncpg.Connection[asyncpg.Record] = await asyncpg.connect(self.relayers.url)
        for number in numbers:
            for _ in range(2 if self.random.random() < 0.05 else 1):
                await self._enqueue_one(conn, number)
        await conn.close()

    async def _enqueue_one(self, conn: Session, number: int) -> None:
        # What a number means does not depend on when it is drawn: a repeat must be the same.
        dice = Random(number)
        rail = "plain" if dice.random() < 0.2 else "keyed"
        valid = dice.random() > 0.01
        destination = IBAN if valid else {"bic": "MARKDEF1100"}
        payload = {"amount": 100 + number, "currency": "EUR", "destination": destination}
        row = await conn.fetchrow(
            *(ENQUEUE, f"i{number}", f"p{number % PARTICIPANTS:03}", "k", rail),
            json.dumps(payload),
        )
        assert row is not None
        known = self.told.ids.setdefault((f"i{number}", "k"), row["outbox_id"])
        assert known == row["outbox_id"], "M2: one key, one payment"
        if not valid:
            self.told.invalid.add(row["outbox_id"])

    async def rage(self) -> None:
        """Do harm until cancelled."""
        conn: asyncpg.Connection[asyncpg.Record] = await asyncpg.connect(self.relayers.url)
        try:
            while True:
                await asyncio.sleep(self.random.uniform(0.2, 1.0))
                harm = self.random.choice(
                    ["kill", "stop", "stop", "cut", "cut", "expire", "expire", "replay"]
                )
                await getattr(self, f"_{harm}")(conn)
        finally:
            await conn.close()

    async def _kill(self, conn: Session) -> None:
        del conn
        if self.told.happened["killed"] >= (40 if FULL else 3):
            return
        self.told.happened["killed"] += 1
        victim = self.fleet.pop(self.random.randrange(len(self.fleet)))
        victim.send(signal.SIGKILL)
        self.fleet.append(self.relayers.start())

    async def _stop(self, conn: Session) -> None:
        """Freeze a relayer wherever it is; often its leases run out before it goes on."""
        victim = self.random.choice(self.fleet)
        victim.send(signal.SIGSTOP)
        try:
            if self.random.random() < 0.7:
                await self._expire(conn)
            await asyncio.sleep(self.random.uniform(0.05, 0.5))
        finally:
            victim.send(signal.SIGCONT)
        self.told.happened["stopped"] += 1

    async def _cut(self, conn: Session) -> None:
        """Lose one connection of one relayer."""
        pids = await conn.fetch(
            "select pid from pg_stat_activity where datname = current_database()"
            " and application_name = 'penstock' order by pid"
        )
        if pids:
            pid = self.random.choice([row["pid"] for row in pids])
            await conn.execute("select pg_terminate_backend($1)", pid)
            self.told.happened["cut"] += 1

    async def _expire(self, conn: Session) -> None:
        """Let every lease run out under those who hold it."""
        await SqlPayments(conn).advance(LEASE_AND_MORE)
        reaped = await SqlPayments(conn).reap()
        self.told.happened["reaped"] += len(reaped)

    async def _replay(self, conn: Session) -> None:
        """Give failed payments of the rail with keys another try, as an operator would."""
        rows = await conn.fetch(
            "select outbox_id from penstock_payments.dead_letters where rail_type = 'keyed'"
            " and error_code <> 'VALIDATION' order by outbox_id limit 3"
        )
        for row in rows:
            # Meanwhile a late success may have ended it: then there is nothing to replay.
            with suppress(PaymentStateMismatch):
                await store.replay(conn, row["outbox_id"], reason="storm")
                self.told.happened["replayed"] += 1

    async def _until_rails_are_quiet(self) -> None:
        """Let the rails read what the dead had sent: who resolves by the books must not be early.

        What was in the sockets before is read before a question that is asked now.
        """
        async with aiohttp.ClientSession() as session:
            for url in [*self.relayers.rails.values()] * 3:
                async with session.get(f"{url}/transfers/{uuid4()}") as answer:
                    assert answer.status == 404

    async def settle(self) -> None:
        """Stop everybody; resolve what is held by the rails' books; let one relayer end it all."""
        for worker in self.fleet:
            worker.send(signal.SIGKILL)
            await worker.ended()
        await self._until_rails_are_quiet()
        conn = self.relayers.payments.conn
        await self.relayers.payments.advance(LEASE_AND_MORE)
        await self.relayers.payments.reap()
        self.relayers.keyed.faults = self.relayers.plain.faults = Faults()
        healthy = self.relayers.start()
        deadline = monotonic() + END_WITHIN_S
        while await _open(conn):
            assert monotonic() < deadline, "payments are left over"
            for row in await conn.fetch(
                "select outbox_id from payment_outbox_inflight where held_at is not null"
            ):
                # Nothing else runs that could have sent it: the books are final.
                paid = self.relayers.plain.paid(row["outbox_id"])
                resolution: Resolution = "dispatched" if paid else "not_paid"
                await store.resolve(
                    conn, row["outbox_id"], resolution, reason="books", reference=paid
                )
                self.told.happened[f"resolved_{resolution}"] += 1
            await asyncio.sleep(0.05)
        await healthy.drained()


async def _open(conn: Session) -> int:
    count: int = await conn.fetchval(
        "select count(*) from payment_outbox_registry where terminal_state is null"
    )
    return count


async def _unheld(conn: Session) -> int:
    """Payments that are open and do not wait behind something held."""
    count: int = await conn.fetchval(
        """select count(*) from payment_outbox_pending p where not exists (
               select from payment_outbox_inflight i
               where i.participant_id = p.participant_id and i.held_at is not null)"""
    )
    return count


async def _assert_books(storm: Storm) -> None:
    """The rails' own books against the database's record."""
    conn = storm.relayers.payments.conn
    rows = await conn.fetch(
        """select r.outbox_id, r.participant_id, r.sequence_id, r.rail_type, r.terminal_state,
                  a.rail_reference
           from payment_outbox_registry r
           left join payment_outbox_attempts a
               on a.outbox_id = r.outbox_id and a.state = 'DISPATCHED'"""
    )
    books = {"keyed": storm.relayers.keyed, "plain": storm.relayers.plain}
    assert len(rows) == PAYMENTS == len(storm.told.ids), "M2"
    for rail in books.values():
        told = [await storm.relayers.payments.attempts(key) for key in rail.doubles()]
        assert told == [], "M1 and M10: at most one effect per payment"
        called = set(rail.calls)
        assert not called & storm.told.invalid, "M8: what is not valid was never sent"
    for row in rows:
        paid = books[row["rail_type"]].paid(row["outbox_id"])
        assert (row["terminal_state"] == "DISPATCHED") == (paid is not None), "M9, by the books"
        assert row["rail_reference"] == paid, "the reference of the first call"
    _assert_order(books, rows)
    assert await storm.relayers.payments.violations() == [], "M2 to M6, M9"
    await until(lambda: _linked(conn), "the chain is complete", within_s=60)
    assert await store.verify_chain(conn) == [], "M7"


async def _assert_proved(url: str) -> None:
    """What `penstock prove` says of it."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "penstock", "--database", url, "prove", "--only", "payments"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()
    print(said.decode())


def _assert_order(books: dict[str, Simulator], rows: list[asyncpg.Record]) -> None:
    """M4: first calls of one participant's payments over one rail come in sequence."""
    known = {row["outbox_id"]: (row["participant_id"], row["sequence_id"]) for row in rows}
    for rail in books.values():
        order: dict[str, list[int]] = defaultdict(list)
        for key in dict.fromkeys(rail.calls):
            participant, sequence = known[key]
            order[participant].append(sequence)
        for participant, sequences in order.items():
            assert sequences == sorted(sequences), f"M4: {participant}"


async def _linked(conn: Session) -> bool:
    return await chain.extend(conn) == 0


@pytest.mark.timeout(1800 if FULL else 180)
async def test_a_storm_moves_no_money_twice_and_loses_none(
    database_url: str, tmp_path: Path
) -> None:
    seed = int(os.environ.get("TEST_SEED") or SystemRandom().randrange(10**6))
    print(f"TEST_SEED={seed} TEST_PAYMENTS={PAYMENTS} TEST_PARTICIPANTS={PARTICIPANTS}")
    random = Random(seed)
    async with relaying(database_url, tmp_path) as relayers:
        relayers.keyed.faults = relayers.plain.faults = FAULTS
        relayers.keyed.random, relayers.plain.random = Random(seed + 1), Random(seed + 2)
        storm = Storm(relayers, random)
        storm.fleet = [relayers.start() for _ in range(4 if FULL else 2)]
        started = monotonic()
        rage = asyncio.create_task(storm.rage())
        await storm.enqueue()
        conn = relayers.payments.conn

        async def quiet() -> bool:
            if rage.done():
                rage.result()
            return not await _unheld(conn)

        await until(quiet, "what is not held is paid", within_s=END_WITHIN_S)
        rage.cancel()
        await asyncio.gather(rage, return_exceptions=True)
        await storm.settle()
        await _assert_books(storm)
        await _assert_proved(database_url)
        repeated = sum(count - 1 for count in Counter(relayers.keyed.calls).values())
        late = await conn.fetchval("select count(*) from penstock.late_results")
        print(
            f"{PAYMENTS} payments in {monotonic() - started:.1f} s; {dict(storm.told.happened)};"
            f" repeated calls absorbed by keys {repeated}; late results {late}"
        )
