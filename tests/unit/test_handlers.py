"""What each kind of handler answers, and what it does to its transaction."""

import asyncio
import threading
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any, cast

import pytest
from tests.support.handlers import Stage, make_item

from penstock import Attempt, Batch, Done, Event, LeaseLost, Reject, Retry, Tx, Unknown, Verdict
from penstock.kernel.answers import verdict_of
from penstock.kernel.errors import DatabaseUnreachable
from penstock.kernel.events import HandlerRaised
from penstock.kernel.handler import CHECK, COMMITTED, LOST

Data = dict[str, Any]


@pytest.fixture
def stage() -> Stage:
    return Stage()


async def test_none_means_done(stage: Stage) -> None:
    async def handler(event: Event[Data]) -> None: ...

    assert await stage.bind(handler).handle([make_item()]) == [Done()]


@pytest.mark.parametrize(
    "verdict", [Retry(after=timedelta(seconds=5)), Reject("NO_SUCH_USER"), Unknown("timed out")]
)
async def test_a_verdict_is_the_answer(stage: Stage, verdict: Retry | Reject | Unknown) -> None:
    async def handler(event: Event[Data]) -> Retry | Reject | Unknown:
        return verdict

    assert await stage.bind(handler).handle([make_item()]) == [verdict]


async def test_an_exception_is_a_retry_that_keeps_its_type_and_nothing_of_its_text(
    stage: Stage,
) -> None:
    class CardDeclinedError(Exception):
        pass

    async def handler(event: Event[Data]) -> None:
        raise CardDeclinedError("card 4111 1111 1111 1111")

    (answer,) = await stage.bind(handler).handle([make_item()])
    assert answer == Retry(reason="CardDeclinedError", code="CARD_DECLINED_ERROR")
    (seen,) = stage.seen
    assert isinstance(seen, HandlerRaised)
    assert seen.error_type == "CardDeclinedError"


async def test_the_log_shows_where_it_was_raised_once_and_not_what_it_said(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    async def handler(event: Event[Data]) -> None:
        raise LookupError("card canary")

    bound = stage.bind(handler)
    for _ in range(3):
        await bound.handle([make_item()])
    assert caplog.text.count("raised LookupError") == 1
    assert "in handler" in caplog.text
    assert "card canary\n" not in caplog.text.replace('raise LookupError("card canary")', "")
    assert len(stage.seen) == 3


async def test_what_is_no_verdict_is_held_because_the_effect_has_happened(stage: Stage) -> None:
    async def handler(event: Event[Data]) -> str:
        return "sent"

    (answer,) = await stage.bind(handler).handle([make_item()])
    assert isinstance(answer, Unknown)
    assert "str" in answer.reason


async def test_a_payload_that_does_not_fit_is_rejected_without_calling(stage: Stage) -> None:
    async def handler(event: Event[dict[str, int]]) -> None:
        raise AssertionError("called")

    bound = stage.bind(handler, model=dict[str, int])
    (answer,) = await bound.handle([make_item(payload=b'{"a": "no number"}')])
    assert isinstance(answer, Reject)
    assert answer.code == "PAYLOAD_INVALID"
    assert "no number" not in answer.reason


async def test_a_handler_that_does_not_end_is_cut_off(stage: Stage) -> None:
    async def handler(event: Event[Data]) -> None:
        await asyncio.Event().wait()

    (answer,) = await stage.bind(handler, timeout_s=0.02).handle([make_item()])
    assert isinstance(answer, Retry)
    assert answer.code == "TIMEOUT"


async def test_a_timeout_of_the_users_own_is_not_ours(stage: Stage) -> None:
    async def handler(event: Event[Data]) -> None:
        raise TimeoutError("upstream")

    (answer,) = await stage.bind(handler).handle([make_item()])
    assert isinstance(answer, Retry)
    assert answer.code == "TIMEOUT_ERROR"


async def test_cancellation_passes_through(stage: Stage) -> None:
    started = asyncio.Event()

    async def handler(event: Event[Data]) -> None:
        started.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(_handled(stage.bind(handler)))
    await asyncio.wait_for(started.wait(), 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def _handled(bound: Any) -> Any:
    return await bound.handle([make_item()])


async def test_a_plain_def_runs_in_a_thread_and_not_on_the_loop(stage: Stage) -> None:
    ran: list[int] = []

    def handler(event: Event[Data]) -> None:
        ran.append(threading.get_ident())

    assert await stage.bind(handler).handle([make_item()]) == [Done()]
    assert ran != [threading.get_ident()]


async def test_with_tx_effect_and_finish_are_one_commit(stage: Stage) -> None:
    async def handler(event: Event[Data], tx: Tx) -> None:
        stage.steps.append("effect")

    assert await stage.bind(handler).handle([make_item()]) == [COMMITTED]
    assert stage.steps == ["begin", "effect", "finish 1", "commit"]


async def test_with_tx_an_exception_rolls_back_and_retries(stage: Stage) -> None:
    async def handler(event: Event[Data], tx: Tx) -> None:
        raise ValueError

    (answer,) = await stage.bind(handler).handle([make_item()])
    assert answer == Retry(reason="ValueError", code="VALUE_ERROR")
    assert stage.steps == ["begin", "rollback"]


@pytest.mark.parametrize("verdict", [Retry(), Reject("NO"), Unknown("?")])
async def test_with_tx_any_verdict_but_done_rolls_back(stage: Stage, verdict: Any) -> None:
    async def handler(event: Event[Data], tx: Tx) -> Any:
        return verdict

    assert await stage.bind(handler).handle([make_item()]) == [verdict]
    assert stage.steps == ["begin", "rollback"]


async def test_with_tx_a_lost_lease_rolls_back_and_leaves_nothing_to_write(stage: Stage) -> None:
    stage.lost = {1}

    async def handler(event: Event[Data], tx: Tx) -> None: ...

    assert await stage.bind(handler).handle([make_item()]) == [LOST]
    assert stage.steps == ["begin", "finish 1", "rollback"]


async def test_a_commit_without_an_answer_is_left_to_the_database(stage: Stage) -> None:
    stage.commit_error = DatabaseUnreachable("connection lost")
    item = make_item()

    async def handler(event: Event[Data], tx: Tx) -> None: ...

    assert await stage.bind(handler).handle([item]) == [CHECK]
    assert item.finished_by_handler


async def test_a_commit_that_was_refused_is_a_retry(stage: Stage) -> None:
    stage.commit_error = ValueError("deferred constraint")

    async def handler(event: Event[Data], tx: Tx) -> None: ...

    (answer,) = await stage.bind(handler).handle([make_item()])
    assert isinstance(answer, Retry)


async def test_a_connection_lost_before_the_commit_is_a_retry(stage: Stage) -> None:
    async def handler(event: Event[Data], tx: Tx) -> None:
        raise DatabaseUnreachable("gone")

    (answer,) = await stage.bind(handler).handle([make_item()])
    assert isinstance(answer, Retry)
    assert answer.code == "PN003"


async def test_after_event_finish_the_database_decides_whatever_is_answered(stage: Stage) -> None:
    connection: Any = object()

    async def fine(event: Event[Data]) -> None:
        await event.finish(connection)

    async def raising(event: Event[Data]) -> None:
        await event.finish(connection)
        raise ValueError

    for handler in (fine, raising):
        assert await stage.bind(handler).handle([make_item()]) == [CHECK]


async def test_a_batch_with_tx_is_one_commit(stage: Stage) -> None:
    async def handler(events: Batch[Data], tx: Tx) -> None: ...

    items = [make_item(key) for key in range(3)]
    answers = await stage.bind(handler, batch=True, size=10).handle(items)
    assert answers == [COMMITTED] * 3
    assert stage.steps == ["begin", "finish 3", "commit"]


async def test_one_poisoned_event_does_not_hurt_its_batch(stage: Stage) -> None:
    async def handler(events: Batch[Data], tx: Tx) -> None:
        if any(event.data.get("poison") for event in events):
            raise ValueError

    items = [make_item(1), make_item(2, b'{"poison": true}'), make_item(3)]
    answers = await stage.bind(handler, batch=True, size=10).handle(items)
    assert answers == [COMMITTED, Retry(reason="ValueError", code="VALUE_ERROR"), COMMITTED]


async def test_one_lost_lease_does_not_cost_its_batch(stage: Stage) -> None:
    stage.lost = {2}

    async def handler(events: Batch[Data], tx: Tx) -> None: ...

    items = [make_item(key) for key in (1, 2, 3)]
    answers = await stage.bind(handler, batch=True, size=10).handle(items)
    assert answers == [COMMITTED, LOST, COMMITTED]


async def test_one_undecodable_payload_does_not_hurt_its_batch(stage: Stage) -> None:
    sizes: list[int] = []

    async def handler(events: Batch[Data]) -> None:
        sizes.append(len(events))

    items = [make_item(1), make_item(2, b"["), make_item(3)]
    answers = await stage.bind(handler, batch=True, size=10).handle(items)
    assert [type(answer) for answer in answers] == [Done, Reject, Done]
    assert sizes == [2]


async def test_a_batch_may_answer_for_each_event(stage: Stage) -> None:
    async def handler(events: Batch[Data]) -> list[Any]:
        return [None, Reject("NO")]

    answers = await stage.bind(handler, batch=True, size=2).handle([make_item(1), make_item(2)])
    assert answers == [Done(), Reject("NO")]


async def test_a_short_lease_is_prolonged_before_the_effect(stage: Stage) -> None:
    async def handler(event: Event[Data]) -> None:
        stage.steps.append("effect")

    assert await stage.bind(handler).handle([make_item(lease_s=2)]) == [Done()]
    assert stage.steps == ["extend 1", "effect"]


async def test_no_effect_starts_on_a_lost_lease(stage: Stage) -> None:
    async def handler(event: Event[Data]) -> None:
        stage.steps.append("effect")

    stage.lost = {1}
    known = make_item(2)
    known.lease.lost = True
    bound = stage.bind(handler)
    assert await bound.handle([make_item(1, lease_s=2)]) == [LOST]
    assert await bound.handle([known]) == [LOST]
    assert stage.steps == ["extend 1"]


async def test_attempt_extend_raises_when_the_lease_is_lost(stage: Stage) -> None:
    async def handler(event: Event[Data], attempt: Attempt) -> None:
        stage.lost = {1}
        with pytest.raises(LeaseLost):
            await attempt.extend()
        await attempt.extend()

    assert await stage.bind(handler).handle([make_item()]) == [LOST]


async def test_hooks_run_around_the_handler(stage: Stage) -> None:
    async def outer(event: Event[Any], attempt: Attempt) -> AsyncIterator[None]:
        stage.steps.append("before")
        yield
        stage.steps.append("after")

    async def handler(event: Event[Data]) -> None:
        stage.steps.append("effect")

    stage.hooks.append(outer)
    await stage.bind(handler).handle([make_item()])
    assert stage.steps == ["before", "effect", "after"]


async def test_the_key_of_an_effect_is_constant_and_its_own(stage: Stage) -> None:
    keys: list[str] = []

    async def handler(event: Event[Data]) -> None:
        async with event.effect("mail") as mail, event.effect("invoice") as invoice:
            keys.extend([mail.key, invoice.key])

    item = make_item()
    bound = stage.bind(handler)
    await bound.handle([item])
    await bound.handle([item])
    assert keys[:2] == keys[2:]
    assert keys[0] != keys[1]


async def test_a_payload_never_shows_in_a_repr(stage: Stage) -> None:
    shown: list[str] = []

    async def handler(event: Event[Data]) -> None:
        shown.append(repr(event))

    await stage.bind(handler).handle([make_item(payload=b'{"card": "canary"}')])
    assert "canary" not in shown[0]


@pytest.mark.parametrize(
    "answer",
    [Retry(after=cast(Any, 30)), Retry(reason=cast(Any, None)), Reject(cast(Any, 404))],
)
def test_a_verdict_with_parts_of_other_types_is_held_for_a_person(answer: Verdict) -> None:
    assert isinstance(verdict_of(answer), Unknown)
