"""Random histories over engine and ledger: I1 to I9 hold at every step, and all ends well.

A worker is split into its calls, so that any number of them can be under way, die between two
calls, come late, or do a thing twice. Operators replay, discard, reap and release meanwhile.
"""

import asyncio
from collections.abc import Awaitable, Coroutine
from typing import Any, TypeVar
from uuid import UUID

import asyncpg
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)
from tests.support.database import cloned
from tests.support.intake import Connection, SqlIntake
from tests.support.ledger import ledger_template as make_ledger_template

from penstock.postgres import Cluster

T = TypeVar("T")
STOCK = 6
USERS = st.sampled_from([f"user {n}" for n in range(5)])
REQUESTS = st.sampled_from([None, "a", "b"])
CLEAN_ENGINE = """
truncate public.inventory_slots, public.engine_config, public.intake_pools,
    penstock_intake.pool_stock, penstock_intake.retired_slots, penstock_intake.returned,
    pgmq.q_intake_queue, pgmq.q_intake_dlq;
select setval(watermark, 0) from penstock_intake.pool_mark;
-- The clock is set back below: a floor of the example before would hide what comes due until then.
select setval('penstock.intake_due', 0);
update penstock.test_clock set shift = interval '0'
"""
CLEAN_LEDGER = "truncate confirmed_tickets, reservation_outcomes"


class Databases:
    """Two connections and the loop that they live on."""

    def __init__(self, engine_url: str, ledger_url: str) -> None:
        self.loop = asyncio.new_event_loop()
        self.engine: Connection = self.run(asyncpg.connect(engine_url))
        self.ledger: Connection = self.run(asyncpg.connect(ledger_url))
        self.intake = SqlIntake(self.engine)
        self.run(self.intake.make_clock_shiftable())

    def run(self, work: Coroutine[Any, Any, T] | Awaitable[T]) -> T:
        async def body() -> T:
            return await work

        return self.loop.run_until_complete(body())

    def close(self) -> None:
        self.run(self.engine.close())
        self.run(self.ledger.close())
        self.loop.close()


class IntakeMachine(RuleBasedStateMachine):
    """Buyers, workers in pieces, operators, and a clock."""

    databases: Databases
    claimed = Bundle("claimed")
    confirmed = Bundle("confirmed")

    def __init__(self) -> None:
        super().__init__()
        self.run = self.databases.run
        self.intake = self.databases.intake
        self.ledger = self.databases.ledger
        self.run(self.intake.conn.execute(CLEAN_ENGINE))
        self.run(self.ledger.execute(CLEAN_LEDGER))
        self.run(self.intake.stock(STOCK))
        self.answers: dict[tuple[str, str], UUID] = {}

    @rule(validation=st.booleans(), limit=st.sampled_from([None, 1, 2]), hold=st.booleans())
    def configure(self, validation: bool, limit: int | None, hold: bool) -> None:
        url = "https://example.org/v" if validation else None
        hold_s = 600 if hold else None
        policy = {"validation_webhook_url": url, "max_per_user": limit, "hold_s": hold_s}
        self.run(self.intake.configure(**policy))

    @rule(users=st.lists(st.tuples(USERS, REQUESTS), min_size=1, max_size=4))
    def reserve(self, users: list[tuple[str, str | None]]) -> None:
        free_before = self.run(self.intake.counts())[0]
        answers = self.run(
            self.intake.reserve(*(u for u, _ in users), requests=[r for _, r in users])
        )
        given = [answer for answer in answers if answer.outcome == "reserved"]
        assert len(given) <= free_before
        outcomes = {answer.outcome for answer in answers}
        assert outcomes <= {"reserved", "again", "sold_out", "limit_reached"}
        if "sold_out" in outcomes:
            assert self.run(self.intake.counts())[0] == 0, "a false sold out (I8)"

    @rule(target=claimed, limit=st.integers(1, 3))
    def claim(self, limit: int) -> Any:
        return multiple(*self.run(self.intake.claim(limit)))

    @rule(row=claimed)
    def validate(self, row: asyncpg.Record) -> None:
        query = "select * from intake_validated($1, $2)"
        self.run(self.intake.conn.fetch(query, [row["resource_id"]], [row["reservation_id"]]))

    @rule(target=confirmed, row=claimed)
    def confirm(self, row: asyncpg.Record) -> Any:
        """A worker asks the engine for leave and then calls the ledger; it may be very late."""
        begin = "select * from intake_begin_commit($1, $2)"
        keys = ([row["resource_id"]], [row["reservation_id"]])
        if not self.run(self.intake.conn.fetch(begin, *keys)):
            return multiple()
        return self._finalize(row)

    @rule(target=confirmed, row=claimed)
    def confirm_late(self, row: asyncpg.Record) -> Any:
        """The leave was had long ago: the call reaches the ledger only now."""
        return self._finalize(row) if row["commit_started"] else multiple()

    def _finalize(self, row: asyncpg.Record) -> Any:
        rows = self.run(
            self.ledger.fetch("select * from finalize_many($1::jsonb[])", [row["message"]])
        )
        good = rows[0]["outcome"] in {"confirmed", "already"}
        return row if good else multiple()

    @rule(row=confirmed)
    def complete(self, row: asyncpg.Record) -> None:
        (outcome,) = self.run(self.intake.complete(row))
        assert outcome in {"consumed", "already"}

    @rule(row=consumes(claimed))
    def retry(self, row: asyncpg.Record) -> None:
        query = "select * from intake_retry($1, $2, '{5}', '{X}', '{x}')"
        self.run(self.intake.conn.fetch(query, [row["msg_id"]], [row["read_ct"]]))

    @rule(row=claimed)
    def reject(self, row: asyncpg.Record) -> None:
        self.run(self.intake.reject(row))

    @rule(row=claimed)
    def give_back(self, row: asyncpg.Record) -> None:
        query = "select * from intake_give_back($1, $2, $3)"
        self.run(self.intake.conn.fetch(query, [row["msg_id"]], [row["read_ct"]], [row["vt"]]))

    @rule(row=claimed, ask=st.booleans())
    def release(self, row: asyncpg.Record, ask: bool) -> None:
        """A refusal; with `ask`, the ledger's word is had first."""
        reservation = row["reservation_id"]
        cancelled = [reservation] if ask and self._cancel(reservation) else []
        query = "select * from intake_release($1, $2, 'no', $3)"
        self.run(self.intake.conn.fetch(query, [row["resource_id"]], [reservation], cancelled))

    def _cancel(self, reservation: UUID) -> bool:
        query = "select cancel_transaction($1)"
        return bool(self.run(self.ledger.fetchval(query, reservation)) == "CANCELLED")

    def _dead(self) -> list[asyncpg.Record]:
        return self.run(self.intake.conn.fetch("select * from intake_dlq_list()"))

    @rule()
    def replay(self) -> None:
        self.run(self.intake.replay(*(row["msg_id"] for row in self._dead())))

    @rule(ask=st.booleans())
    def discard(self, ask: bool) -> None:
        for row in self._dead():
            cancelled = [row["id"]] if ask and self._cancel(row["id"]) else []
            self.run(self.intake.discard(row["msg_id"], cancelled=cancelled))

    @rule(seconds=st.sampled_from([6, 50, 700]))
    def time_passes(self, seconds: int) -> None:
        self.run(self.intake.shift(seconds))

    @rule()
    def keep_house(self) -> None:
        self.run(self.intake.tend())
        self.run(self.intake.conn.fetchval("select reap_orphaned_slots()"))
        self.run(self.intake.conn.fetchval("select intake_expire_holds()"))

    @invariant()
    def everything_is_accounted_for(self) -> None:
        assert self.run(self.intake.violations()) == []
        assert self.run(self.ledger.fetch("select * from ledger_prove()")) == []
        sold = self.run(self.intake.conn.fetch("select * from intake_prove_sold()"))
        columns = [[row[n] for row in sold] for n in ("resource_id", "user_id", "reservation_id")]
        query = "select * from ledger_prove_sold($1, $2, $3)"
        assert self.run(self.ledger.fetch(query, *columns)) == []
        tickets = self.run(self.ledger.fetch("select * from ledger_tickets()"))
        columns = [[r[n] for r in tickets] for n in ("resource_id", "user_id", "reservation_id")]
        query = "select * from intake_prove_tickets($1, $2, $3)"
        assert self.run(self.intake.conn.fetch(query, *columns)) == []
        assert sum(self.run(self.intake.counts())) == STOCK

    def teardown(self) -> None:
        """Faults stop: a patient worker brings every reservation to its end."""
        self.run(self.intake.configure(validation_webhook_url=None, hold_s=None))
        self.replay()
        for _ in range(20):
            self.run(self.intake.shift(700))
            self.keep_house()
            rows = self.run(self.intake.claim(100))
            for row in rows:
                self._end(row)
            if not rows and self.run(self.intake.depth()) == 0:
                break
        assert self.run(self.intake.depth()) == 0
        self.everything_is_accounted_for()

    def _end(self, row: asyncpg.Record) -> None:
        if row["slot"] == "reserved" and self._finalize(row) is row:
            assert self.run(self.intake.complete(row)) == ["consumed"]
        elif row["slot"] == "consumed":
            assert self.run(self.intake.complete(row)) == ["already"]
        else:
            self.release(row, ask=True)
            self.run(self.intake.conn.fetch("select intake_queue_delete($1)", [row["msg_id"]]))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_random_histories_keep_every_invariant(cluster: Cluster, migrated_template: str) -> None:
    ledger = make_ledger_template(cluster)
    with cloned(cluster, migrated_template) as engine_url, cloned(cluster, ledger) as ledger_url:
        databases = Databases(engine_url, ledger_url)
        machine = type("Machine", (IntakeMachine,), {"databases": databases})
        try:
            run_state_machine_as_test(
                machine,
                settings=settings(
                    max_examples=25,
                    stateful_step_count=30,
                    deadline=None,
                    database=None,
                    suppress_health_check=list(HealthCheck),
                ),
            )
        finally:
            databases.close()
