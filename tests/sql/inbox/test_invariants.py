"""Random walks over every verb, with crashes and a clock that jumps: the invariants hold."""

from collections import Counter
from datetime import timedelta
from random import Random
from uuid import UUID

import pytest
from tests.support.inbox import Leased, SqlInbox, arrival

from penstock.inbox import store
from penstock.inbox.prove import prove

STEPS = 150
EVENTS = 12
FINISHED = ("success", "dead_letter")


class Walk:
    """One source, a few events, and what every step may do to them."""

    def __init__(self, inbox: SqlInbox, webhook_id: UUID, seed: int) -> None:
        self.inbox = inbox
        self.webhook_id = webhook_id
        self.random = Random(seed)
        self.held: list[Leased] = []
        self.stored: Counter[str] = Counter()
        self.successes: Counter[str] = Counter()
        self.epochs: dict[UUID, int] = {}

    async def receive(self) -> None:
        names = [f"evt-{self.random.randrange(EVENTS)}" for _ in range(3)]
        body = self.random.choice(['{"n": 1}', '{"n": 1}', '{"n": 2}'])
        answers = await self.inbox.receive(*(arrival(self.webhook_id, n, body) for n in names))
        for name, answer in zip(names, answers, strict=True):
            self.stored[name] += answer == "stored"

    async def claim(self) -> None:
        for item in await self.inbox.claim(self.random.randint(1, 4)):
            assert item.epoch > self.epochs.get(item.id, 0)
            self.epochs[item.id] = item.epoch
            self.held.append(item)

    def _one(self) -> list[Leased]:
        """One of the claims, the live and the long lost alike: a stale one must change nothing."""
        return [self.held[self.random.randrange(len(self.held))]] if self.held else []

    async def finish(self) -> None:
        for item in self._one():
            before = await self.inbox.state(item.id)
            refused = await self.inbox.finish([item])
            if not refused and before == "LEASED":
                self.successes[item.event_id] += 1

    async def fail(self) -> None:
        verdict = self.random.choice(["retry", "retry", "reject", "unknown", "check"])
        for item in self._one():
            await self.inbox.fail([item], verdict, delay_s=self.random.choice([None, 0.0]))

    async def release(self) -> None:
        for item in self._one():
            await store.release(self.inbox.conn, [item.id], [item.token])

    async def extend(self) -> None:
        for item in self._one():
            await store.extend(self.inbox.conn, [item.id], [item.token])

    async def time_passes(self) -> None:
        await self.inbox.advance(timedelta(seconds=self.random.choice([1, 31, 90, 4000])))
        await self.inbox.tend(sweep=True)

    async def operate(self) -> None:
        verb = self.random.choice(["replay", "replay", "discard"])
        ids = await self.inbox.conn.fetch("select id from webhook.inbox_dead")
        wanted = [row["id"] for row in ids if self.random.random() < 0.5]
        await self.inbox.conn.execute(f"select penstock.{verb}('inbox', $1, 'walk')", wanted)

    async def keep(self) -> None:
        await self.inbox.conn.execute("select webhook.inbox_keep()")

    async def by_hand(self) -> None:
        await self.inbox.conn.execute(
            "update webhook_events set status = 'pending' where status = 'dead_letter'"
            " and seq % 3 = 0"
        )

    async def step(self) -> None:
        verbs = [self.receive, self.claim, self.claim, self.finish, self.fail, self.release]
        verbs += [self.extend, self.time_passes, self.operate, self.keep, self.by_hand]
        await self.random.choice(verbs)()

    async def settle(self) -> None:
        """Faults stop; every event comes to an end."""
        for _ in range(12):
            for item in await self.inbox.claim():
                assert await self.inbox.finish([item]) == []
                self.successes[item.event_id] += 1
            await self.time_passes()


@pytest.mark.parametrize("seed", range(4))
async def test_every_event_is_stored_once_and_ends_once(
    inbox: SqlInbox, stripe: UUID, seed: int
) -> None:
    walk = Walk(inbox, stripe, seed)
    for number in range(STEPS):
        await walk.step()
        if number % 10 == 0:
            assert not (await prove(inbox.conn, pause_s=0)).violations
    await walk.settle()
    assert not (await prove(inbox.conn, pause_s=0)).violations
    assert set(walk.stored.values()) <= {0, 1}
    assert all(count <= 1 for count in walk.successes.values())
    open_events = "select count(*) from webhook_events where status::text <> all ($1)"
    assert await inbox.conn.fetchval(open_events, list(FINISHED)) == 0
    total = await inbox.counter("processing", "success")
    assert total == sum(walk.successes.values())


async def test_what_breaks_an_invariant_is_found(inbox: SqlInbox, stripe: UUID) -> None:
    await inbox.send(stripe, "a", "b", "c")
    await inbox.finish(await inbox.claim(1))
    break_it = (
        "update webhook_events set lease_epoch = 7 where event_id = 'a'",
        "update webhook_events set raw_body = 'forged' where event_id = 'b'",
        "insert into webhook.memory select webhook_id, event_id, body_sha256, received_at"
        " from webhook_events where event_id = 'c'",
    )
    for statement in break_it:
        await inbox.conn.execute(statement)
    found = await prove(inbox.conn, pause_s=0)
    assert sorted(one.invariant for one in found.violations) == ["K5", "N2", "N6"]
