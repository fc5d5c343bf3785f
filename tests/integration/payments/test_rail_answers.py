"""Rails are other people's code: what they answer may be of no type that they promised."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast
from uuid import UUID

import pytest
from tests.support.rails import Shop, opened

from penstock.kernel.events import Events
from penstock.kernel.verdict import Reject, Retry, Unknown
from penstock.payments import resolver
from penstock.payments.instruction import Instruction
from penstock.payments.rails import RailOutcome, Sent, StatusOutcome
from penstock.payments.resolver import Resolver

AT_ONCE = resolver.ASKED_AT_ONCE


@pytest.fixture
async def shop(database_url: str) -> AsyncIterator[Shop]:
    async with opened(database_url) as found:
        yield found


class Odd:
    """A rail that answers once with what it was given, and what was paid when it is asked."""

    def __init__(self, answer: object) -> None:
        self.answer = answer
        self.calls: list[UUID] = []
        self.asked: list[UUID] = []
        self.paid: dict[UUID, object] = {}

    async def dispatch(self, instruction: Instruction, key: UUID) -> RailOutcome:
        self.calls.append(key)
        return cast(RailOutcome, self.answer)

    async def status_query(self, instruction: Instruction, key: UUID) -> StatusOutcome:
        self.asked.append(key)
        if key in self.paid:
            return cast(StatusOutcome, self.paid[key])
        await asyncio.Event().wait()
        raise AssertionError


UNTYPED: Any = []
NUMBER: Any = 51


@pytest.mark.parametrize(
    ("answer", "state", "code"),
    [
        (Sent(NUMBER, NUMBER), "DISPATCHED", "51"),
        (Sent(UNTYPED), "DISPATCHED", "OK"),
        (Reject(NUMBER), "FAILED", "51"),
        (Retry(NUMBER, code="BUSY"), "RETRYABLE", "BUSY"),
        (Unknown(code=UNTYPED), "HELD", None),
        (Unknown(UNTYPED, NUMBER), "HELD", None),
        ((), "HELD", None),
    ],
)
async def test_an_answer_of_the_wrong_type_never_pays_twice_and_never_loses_a_payment(
    shop: Shop, answer: object, state: str, code: str | None
) -> None:
    rail = Odd(answer)
    shop.use(rail, key_window=None)
    payment = await shop.enqueue()
    await shop.work()
    assert (await shop.state(payment), rail.calls) == (state, [payment])
    assert code is None or (await shop.attempts(payment))[1][2] == code
    assert await shop.violations() == []


async def _held(shop: Shop, count: int) -> list[UUID]:
    return [await shop.enqueue(f"p{n:02}") for n in range(count)]


async def test_those_nobody_can_tell_about_do_not_keep_the_others_from_being_asked_about(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resolver, "ASK_S_MAX", 0.05)
    monkeypatch.setattr(resolver, "SECONDS_MAX", 0.0)
    rail = Odd(Unknown())
    shop.use(rail, key_window=None)
    silent = await _held(shop, AT_ONCE)
    await shop.work()
    paid = await shop.enqueue("last")
    await shop.work()
    rail.paid[paid] = Sent("bank\0-7", "PAID")
    asking = Resolver(shop.ps.payments.rails, Events())
    async with shop.ps.lending.database.connection() as conn:
        assert await asking.run(conn) == 0
        assert sorted(rail.asked) == sorted(silent), "a run that has used its time stops"
        assert await asking.run(conn) == 1
        assert rail.asked[AT_ONCE:] == [paid], "the next one goes on behind it"
        assert await asking.run(conn) == 0
        assert sorted(rail.asked[-AT_ONCE:]) == sorted(silent), "and round again"
    assert await shop.state(paid) == "DISPATCHED"


async def test_a_process_asks_only_about_rails_that_it_has(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resolver, "ASK_S_MAX", 0.05)
    other, rail = Odd(Unknown()), Odd(Unknown())
    shop.use(other, name="other", key_window=None)
    shop.use(rail, key_window=None)
    for n in range(AT_ONCE):
        await shop.enqueue(f"p{n}", rail="other")
    await shop.work()
    paid = await shop.enqueue("mine")
    await shop.work()
    rail.paid[paid] = Sent("r", "PAID")
    mine = {"ach": shop.ps.payments.rails["ach"]}
    async with shop.ps.lending.database.connection() as conn:
        assert await Resolver(mine, Events()).run(conn) == 1
    assert (rail.asked, other.asked) == ([paid], [])
