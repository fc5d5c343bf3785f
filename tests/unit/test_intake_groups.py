"""The front door: grouping without a timer, one answer each, bounded waiting."""

import asyncio
from collections.abc import Sequence
from uuid import uuid4

import pytest

from penstock.intake.answers import BUSY, SOLD_OUT, Busy, ReserveAnswer, Reserved
from penstock.intake.groups import (
    BUSY_PAUSES_S,
    CALLS_MAX,
    WAITING_PER_USER_MAX,
    Claim,
    FrontDoor,
)
from penstock.kernel.errors import DatabaseUnreachable
from penstock.kernel.http_errors import OverCapacity


class Counter:
    """Stands for the database: holds calls until told, remembers what each carried."""

    def __init__(self, *, held: bool = False) -> None:
        self.calls: list[tuple[str, list[Claim]]] = []
        self.open = asyncio.Event()
        self.most = 0
        self.running = 0
        self.answers: dict[str, list[ReserveAnswer]] = {}
        self.error: Exception | None = None
        if not held:
            self.open.set()

    async def reserve(self, pool: str, claims: Sequence[Claim]) -> Sequence[ReserveAnswer]:
        self.calls.append((pool, list(claims)))
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await self.open.wait()
            if self.error is not None:
                raise self.error
            return [self._answer(claim) for claim in claims]
        finally:
            self.running -= 1

    def _answer(self, claim: Claim) -> ReserveAnswer:
        given = self.answers.get(claim.user)
        return given.pop(0) if given else Reserved(uuid4(), uuid4())


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_lone_claim_goes_at_once() -> None:
    counter = Counter()
    door = FrontDoor(counter.reserve, waiting_max=10)
    assert isinstance(await door.reserve("p", Claim("alice")), Reserved)
    assert [len(claims) for _, claims in counter.calls] == [1]
    assert door.waiting == 0


async def test_what_arrives_while_a_call_is_in_flight_goes_together() -> None:
    counter = Counter(held=True)
    door = FrontDoor(counter.reserve, waiting_max=1000)
    first = asyncio.create_task(door.reserve("p", Claim("first")))
    await settled()
    rest = [asyncio.create_task(door.reserve("p", Claim(f"u{n}"))) for n in range(50)]
    await settled()
    assert len(counter.calls) == 1
    counter.open.set()
    answers = await asyncio.gather(first, *rest)
    assert [len(claims) for _, claims in counter.calls] == [1, 50]
    assert len({answer.resource_id for answer in answers if isinstance(answer, Reserved)}) == 51


async def test_each_claim_gets_its_own_answer() -> None:
    counter = Counter()
    counter.answers = {"late": [SOLD_OUT]}
    door = FrontDoor(counter.reserve, waiting_max=10)
    early, late = await asyncio.gather(
        door.reserve("p", Claim("early")), door.reserve("p", Claim("late"))
    )
    assert isinstance(early, Reserved)
    assert late == SOLD_OUT


async def test_a_large_crowd_uses_two_calls_and_never_more() -> None:
    counter = Counter(held=True)
    door = FrontDoor(counter.reserve, waiting_max=10_000)
    tasks = [asyncio.create_task(door.reserve("p", Claim(f"u{n}"))) for n in range(3000)]
    await settled()
    assert len(counter.calls) == CALLS_MAX
    counter.open.set()
    await asyncio.gather(*tasks)
    assert counter.most == CALLS_MAX
    assert sum(len(claims) for _, claims in counter.calls) == 3000


async def test_a_user_stands_at_most_once_in_what_is_in_flight() -> None:
    counter = Counter(held=True)
    door = FrontDoor(counter.reserve, waiting_max=10_000)
    crowd = [Claim(f"u{n % 100}", request_id=str(n)) for n in range(400)]
    tasks = [asyncio.create_task(door.reserve("p", claim)) for claim in crowd]
    await settled()
    in_flight = [claim.user for _, claims in counter.calls for claim in claims]
    assert len(in_flight) == len(set(in_flight))
    counter.open.set()
    await asyncio.gather(*tasks)
    for _, claims in counter.calls:
        assert len({claim.user for claim in claims}) == len(claims)
    carried = [claim.request_id for _, claims in counter.calls for claim in claims]
    assert sorted(carried, key=lambda text: int(text or "")) == [str(n) for n in range(400)]


async def test_waiting_is_bounded_in_all_and_per_user() -> None:
    counter = Counter(held=True)
    door = FrontDoor(counter.reserve, waiting_max=30)
    one = [asyncio.create_task(door.reserve("p", Claim("greedy", "sent")))]
    await settled()
    one += [
        asyncio.create_task(door.reserve("p", Claim("greedy", str(n))))
        for n in range(WAITING_PER_USER_MAX)
    ]
    await settled()
    with pytest.raises(OverCapacity):
        await door.reserve("p", Claim("greedy", "one more"))
    others = [asyncio.create_task(door.reserve("p", Claim(f"u{n}"))) for n in range(13)]
    await settled()
    with pytest.raises(OverCapacity):
        await door.reserve("p", Claim("late"))
    counter.open.set()
    answers = await asyncio.gather(*one, *others)
    assert all(isinstance(answer, Reserved) for answer in answers)
    assert door.waiting == 0


async def test_busy_is_asked_again_and_then_said() -> None:
    counter = Counter()
    counter.answers = {"soon": [BUSY, BUSY], "never": [BUSY] * 20}
    door = FrontDoor(counter.reserve, waiting_max=10)
    soon, never = await asyncio.gather(
        door.reserve("p", Claim("soon")), door.reserve("p", Claim("never"))
    )
    assert isinstance(soon, Reserved)
    assert isinstance(never, Busy)
    asked = [claim.user for _, claims in counter.calls for claim in claims]
    assert asked.count("never") == len(BUSY_PAUSES_S) + 1


async def test_an_error_reaches_everyone_in_the_call_and_nobody_after_it() -> None:
    counter = Counter(held=True)
    counter.error = DatabaseUnreachable("gone")
    door = FrontDoor(counter.reserve, waiting_max=10)
    both = [asyncio.create_task(door.reserve("p", Claim(user))) for user in ("alice", "bob")]
    await settled()
    counter.open.set()
    outcomes = await asyncio.gather(*both, return_exceptions=True)
    assert all(isinstance(outcome, DatabaseUnreachable) for outcome in outcomes)
    counter.error = None
    assert isinstance(await door.reserve("p", Claim("alice")), Reserved)


async def test_a_caller_that_went_away_is_not_sent_and_does_not_block_others() -> None:
    counter = Counter(held=True)
    door = FrontDoor(counter.reserve, waiting_max=10)
    first = asyncio.create_task(door.reserve("p", Claim("first")))
    await settled()
    gone = asyncio.create_task(door.reserve("p", Claim("gone")))
    stays = asyncio.create_task(door.reserve("p", Claim("stays")))
    await settled()
    gone.cancel()
    await settled()
    counter.open.set()
    await asyncio.gather(first, stays)
    assert [claim.user for _, claims in counter.calls for claim in claims] == ["first", "stays"]


async def test_a_pool_whose_callers_have_all_left_is_forgotten() -> None:
    counter = Counter(held=True)
    door = FrontDoor(counter.reserve, waiting_max=100)
    claims = [
        asyncio.create_task(door.reserve(f"pool {number}", Claim("alice"))) for number in range(50)
    ]
    await settled()
    for claim in claims:
        claim.cancel()
    counter.open.set()
    await settled()
    assert (door.waiting, door._pools) == (0, {})


async def test_pools_do_not_wait_for_each_other() -> None:
    counter = Counter(held=True)
    door = FrontDoor(counter.reserve, waiting_max=10)
    tasks = [asyncio.create_task(door.reserve(pool, Claim("alice"))) for pool in ("a", "b")]
    await settled()
    assert {pool for pool, _ in counter.calls} == {"a", "b"}
    counter.open.set()
    await asyncio.gather(*tasks)
    await door.close()


async def test_without_grouping_each_claim_is_a_call_of_its_own() -> None:
    counter = Counter(held=True)
    door = FrontDoor(counter.reserve, waiting_max=100, group_max=1, calls_max=5)
    claims = [asyncio.create_task(door.reserve("p", Claim(f"user{n}"))) for n in range(20)]
    await settled()
    assert counter.running == 5
    counter.open.set()
    await asyncio.gather(*claims)
    assert [len(carried) for _, carried in counter.calls] == [1] * 20
    assert counter.most == 5
