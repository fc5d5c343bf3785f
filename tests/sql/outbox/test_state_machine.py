"""The outbox as a state machine against a model, by Hypothesis, on a real database.

Several workers, operators and a clock that jumps, in any order. After every step the invariants
hold for what is recorded (K1, K2, K4 to K8), and the state of each event is the model's. At the end
the workers go on without faults, and everything must end (K3).

The seed is fixed by PENSTOCK_TEST_SEED, else drawn and printed; a failure prints the steps.
"""

import asyncio
import os
import random
from collections.abc import Coroutine
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from time import monotonic
from typing import Any, TypeVar
from uuid import UUID

import asyncpg
import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.support import mutants
from tests.support.database import cloned
from tests.support.history import TERMINAL, Recorded, violations
from tests.support.outbox import Leased, SqlOutbox

from penstock.postgres import Cluster

T = TypeVar("T")
LEASE_S = 30
OPEN_MAX = 3
MAX_ATTEMPTS = 3
# Reaping brings an event back, makes it a suspect or kills it, by the attempts it has used.
AFTER_LEASE = {1: "READY", 2: "WAITING", 3: "DEAD"}


@dataclass(slots=True)
class Modelled:
    """What the model knows of one event."""

    state: str = "READY"
    token: UUID | None = None
    attempts: int = 0
    lease_ends_s: float = 0.0
    due_s: float = 0.0


class OutboxMachine(RuleBasedStateMachine):
    """Publish, claim, finish, fail, extend, release, pass time, replay, discard, cancel."""

    cluster: Cluster
    template: str
    mutant = "select 1"

    leases: Bundle[Leased] = Bundle("leases")

    def __init__(self) -> None:
        super().__init__()
        self._stack = ExitStack()
        self._loop = asyncio.new_event_loop()
        self.model: dict[UUID, Modelled] = {}
        self.shift_s = 0.0
        self.started_s = monotonic()

    @property
    def now_s(self) -> float:
        """The database's time, counted from the start."""
        return self.shift_s + monotonic() - self.started_s

    def run(self, step: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(step)

    @initialize()
    def install(self) -> None:
        url = self._stack.enter_context(cloned(self.cluster, self.template))
        self.conn = self.run(asyncpg.connect(url))
        self.outbox = SqlOutbox(self.conn)
        self.run(self.outbox.make_clock_settable())
        self.run(self.outbox.policy(lease_s=LEASE_S, max_attempts=MAX_ATTEMPTS))
        self.run(self.conn.execute(self.mutant))

    def teardown(self) -> None:
        # A broken outbox fails in here: what was opened is closed all the same, or it would be
        # collected, and complained about, in the middle of some other test.
        try:
            if self.model:
                self.run(self._quiesce())
        finally:
            if hasattr(self, "conn"):
                self.run(self.conn.close())
            self._loop.close()
            self._stack.close()

    # producers

    def _few(self) -> bool:
        """Few open events, so that they meet each other's steps again and again."""
        return sum(known.state not in TERMINAL for known in self.model.values()) < OPEN_MAX

    @precondition(_few)
    @rule()
    def publish(self) -> None:
        (event,) = self.run(self.outbox.publish(1))
        self.model[event] = Modelled()

    @precondition(_few)
    @rule(delay_s=st.sampled_from([1, 40]))
    def publish_for_later(self, delay_s: int) -> None:
        (event,) = self.run(self.outbox.publish(1, after=timedelta(seconds=delay_s)))
        self.model[event] = Modelled("WAITING", due_s=self.now_s + delay_s)

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        event = self._any(data)
        if event is None:
            return
        done = self.run(self.conn.fetchval("select app.outbox_cancel($1, 'r')", event))
        assert done == (self.model[event].state in ("READY", "WAITING"))
        if done:
            self.model[event].state = "CANCELLED"

    # workers

    @rule(target=leases, limit=st.integers(1, 3), joint=st.booleans())
    def claim(self, limit: int, joint: bool) -> Any:
        return multiple(*self._claim(limit, joint=joint))

    @rule(target=leases, joint=st.booleans())
    def claim_and_be_taken_over(self, joint: bool) -> Any:
        first = self._claim(OPEN_MAX, joint=joint)
        self.pass_time(LEASE_S + 1)
        return multiple(*first, *self._claim(OPEN_MAX, joint=joint))

    @rule(times=st.integers(1, MAX_ATTEMPTS), joint=st.booleans())
    def claim_and_fail(self, times: int, joint: bool) -> None:
        for _ in range(times):
            for item in self._claim(OPEN_MAX, joint=joint):
                self.fail(item, "retry", 0)

    def _claim(self, limit: int, *, joint: bool) -> list[Leased]:
        self.tend()  # a claim keeps house by itself now and then; here it is the model's step
        items = self.run(self.outbox.claim(limit, joint=joint))
        ready = sum(one.state == "READY" for one in self.model.values())
        assert len(items) == min(limit, ready), "every ready event can be claimed"
        for item in items:
            known = self.model[item.id]
            assert known.state == "READY", f"claimed while {known.state}"
            known.state, known.token = "LEASED", item.token
            known.attempts += 1
            known.lease_ends_s = self.now_s + LEASE_S
        return items

    def _holds(self, item: Leased) -> bool:
        known = self.model[item.id]
        return known.state == "LEASED" and known.token == item.token

    def _expect(self, refused: list[int], item: Leased) -> bool:
        held = self._holds(item)
        assert refused == ([] if held else [item.seq])
        return held

    @rule(item=consumes(leases), repeated=st.booleans())
    def finish(self, item: Leased, repeated: bool) -> None:
        if self._expect(self.run(self.outbox.finish([item])), item):
            self.model[item.id].state = "DELIVERED"
            if repeated:
                assert self.run(self.outbox.finish([item])) == [], "the answer may have been lost"

    @rule(
        item=consumes(leases),
        verdict=st.sampled_from(["retry", "retry", "retry", "reject", "unknown"]),
        delay_s=st.sampled_from([0, 0, 20]),
    )
    def fail(self, item: Leased, verdict: str, delay_s: int) -> None:
        refused = self.run(self.outbox.fail([item], verdict, delay_s=delay_s))
        if not self._expect(refused, item):
            return
        known = self.model[item.id]
        if verdict == "retry" and known.attempts < MAX_ATTEMPTS:
            known.state, known.due_s = "WAITING", self.now_s + delay_s
        else:
            known.state = "HELD" if verdict == "unknown" else "DEAD"

    @rule(item=leases)
    def extend(self, item: Leased) -> None:
        lost = self.run(self.outbox.extend([item]))
        assert lost == ([] if self._holds(item) else [item.seq])
        if not lost:
            self.model[item.id].lease_ends_s = self.now_s + LEASE_S

    @rule(item=consumes(leases))
    def release(self, item: Leased) -> None:
        held = self._holds(item)
        assert self.run(self.outbox.release([item])) == int(held)
        if held:
            known = self.model[item.id]
            known.state, known.attempts = "READY", known.attempts - 1

    @rule(seconds=st.sampled_from([15, 31]))
    def pass_time(self, seconds: int) -> None:
        self.run(self.outbox.advance(timedelta(seconds=seconds)))
        self.shift_s += seconds
        self.tend()

    def tend(self) -> None:
        self.run(self.outbox.tend(sweep=True))
        self._read_back()

    def _read_back(self) -> None:
        """What housekeeping may do to an event, and nothing else."""
        rows = self.run(self.conn.fetch("select id, state from app.outbox_all"))
        for row in rows:
            known, now = self.model[row["id"]], row["state"]
            if known.state == "LEASED" and now != "LEASED":
                assert self.now_s > known.lease_ends_s - 1, "reaped before its lease ended"
                assert now in (AFTER_LEASE[known.attempts], "READY")
            elif known.state == "WAITING" and now == "READY":
                assert self.now_s > known.due_s - 1, "brought back before it was due"
            else:
                assert now == known.state
            known.state = now

    # operators

    def _any(self, data: st.DataObject) -> UUID | None:
        if not self.model:
            return None
        return data.draw(st.sampled_from(sorted(self.model)[-4:]))

    @rule(data=st.data(), verb=st.sampled_from(["replay", "discard"]))
    def operate(self, data: st.DataObject, verb: str) -> None:
        event = self._any(data)
        if event is None:
            return
        rows = self.run(
            self.conn.fetch(f"select id from app.outbox_{verb}(array[$1::uuid], 'r')", event)
        )
        known = self.model[event]
        assert bool(rows) == (known.state in ("DEAD", "HELD"))
        if rows:
            known.state = "READY" if verb == "replay" else "DISCARDED"
            known.attempts = 0

    # what holds at every step, and in the end

    @invariant()
    def history_is_sound(self) -> None:
        if not self.model:
            return
        found = self.run(Recorded.read(self.conn))
        assert violations(found, self.model.keys(), quiet=False) == []
        for row in found.events:
            known = self.model[row["id"]]
            assert row["state"] == known.state
            assert row["attempts"] in (None, known.attempts)

    async def _quiesce(self) -> None:
        """Workers go on, nothing fails any more: everything ends."""
        for _ in range(60):
            await self.outbox.advance(timedelta(seconds=61))
            await self.outbox.tend(sweep=True)
            await self.outbox.finish(await self.outbox.claim(joint=True))
            if not await self.conn.fetchval(
                "select exists (select from outbox where dead_at is null and held_at is null)"
            ):
                break
        found = await Recorded.read(self.conn)
        assert violations(found, self.model.keys(), quiet=True) == []


def _run(
    cluster: Cluster, template: str, mutant: str = "select 1", *, examples: int, find: bool
) -> None:
    drawn = random.SystemRandom().randrange(2**32)
    # A mutant is looked for from a fixed seed: whether it is found must not be a matter of luck.
    number = 1 if find else int(os.environ.get("PENSTOCK_TEST_SEED") or drawn)
    print(f"PENSTOCK_TEST_SEED={number}")
    machine = type(
        "Machine",
        (OutboxMachine,),
        {"cluster": cluster, "template": template, "mutant": mutant},
    )
    limits = settings(
        max_examples=examples,
        stateful_step_count=40,
        deadline=None,
        database=None,
        print_blob=True,
        phases=[Phase.generate] if find else [Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(seed(number)(machine), settings=limits)


@pytest.mark.slow
def test_the_outbox_behaves_as_its_model(cluster: Cluster, migrated_template: str) -> None:
    examples = int(os.environ.get("PENSTOCK_TEST_EXAMPLES", "20"))
    _run(cluster, migrated_template, examples=examples, find=False)


@pytest.mark.slow
@pytest.mark.parametrize("mutant", sorted(mutants.STATES))
def test_a_broken_outbox_is_told_from_its_model(
    cluster: Cluster, migrated_template: str, mutant: str
) -> None:
    with pytest.raises(AssertionError):
        _run(cluster, migrated_template, mutants.STATES[mutant], examples=60, find=True)
