"""What a handler may ask for, and what it is told when it asks for something else."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from penstock import Attempt, BadHandler, Batch, Event, Tx
from penstock.kernel.injection import Resources, plan_for


@dataclass
class Order:
    number: int


class Mailer:
    pass


class Unregistered:
    pass


@pytest.fixture
def resources() -> Resources:
    found = Resources()

    async def mailer() -> AsyncIterator[Mailer]:
        yield Mailer()

    found.add(mailer)
    return found


def test_parameters_are_told_apart_by_their_types(resources: Resources) -> None:
    async def handler(event: Event[Order], post: Mailer, t: Tx, a: Attempt) -> None: ...

    plan = plan_for(handler, resources, batch=False)
    assert (plan.tx, plan.attempt, dict(plan.resources)) == ("t", "a", {"post": Mailer})
    assert plan.model is Order
    assert plan.is_async


def test_an_unknown_parameter_is_refused_with_the_list_of_what_there_is(
    resources: Resources,
) -> None:
    async def handler(event: Event[Order], other: Unregistered) -> None: ...

    with pytest.raises(BadHandler) as caught:
        plan_for(handler, resources, batch=False)
    told = caught.value.explain()
    assert "other" in told
    assert "Unregistered" in told
    assert "Tx, Attempt, Mailer" in told


def test_a_parameter_with_a_default_is_left_alone(resources: Resources) -> None:
    async def handler(event: Event[Order], limit: int = 3) -> None: ...

    assert not plan_for(handler, resources, batch=False).resources


def test_a_parameter_without_annotation_is_refused(resources: Resources) -> None:
    async def handler(event: Event[Order], other: int) -> None: ...

    del handler.__annotations__["other"]
    with pytest.raises(BadHandler, match="has no annotation"):
        plan_for(handler, resources, batch=False)


def test_a_plain_def_cannot_have_our_transaction(resources: Resources) -> None:
    def handler(event: Event[Order], tx: Tx) -> None: ...

    with pytest.raises(BadHandler) as caught:
        plan_for(handler, resources, batch=False)
    assert "finish_sync" in caught.value.todo


@pytest.mark.parametrize("batch", [True, False])
def test_the_first_parameter_fits_the_kind_of_handler(resources: Resources, batch: bool) -> None:
    async def one(event: Event[Order]) -> None: ...
    async def many(events: Batch[Order]) -> None: ...

    right, wrong = (many, one) if batch else (one, many)
    assert plan_for(right, resources, batch=batch).model is Order
    with pytest.raises(BadHandler, match="first parameter"):
        plan_for(wrong, resources, batch=batch)


def test_what_cannot_be_called_is_refused(resources: Resources) -> None:
    async def nothing() -> None: ...
    async def anything(event: Event[Order], *rest: int) -> None: ...
    async def twice(event: Event[Order], a: Tx, b: Tx) -> None: ...
    async def yields(event: Event[Order]) -> AsyncIterator[None]:
        yield

    for handler in (nothing, anything, twice, yields):
        with pytest.raises(BadHandler):
            plan_for(handler, resources, batch=False)


def test_callable_objects_are_handlers(resources: Resources) -> None:
    class Handler:
        async def __call__(self, event: Event[Order], post: Mailer) -> None: ...

    plan = plan_for(Handler(), resources, batch=False)
    assert plan.is_async
    assert plan.model is Order


def test_a_resource_says_what_it_yields(resources: Resources) -> None:
    async def silent() -> AsyncIterator[int]:
        yield 1

    del silent.__annotations__["return"]

    async def single() -> Mailer:
        return Mailer()

    async def again() -> AsyncIterator[Mailer]:
        yield Mailer()

    for factory in (silent, single, again):
        broken: Any = factory
        with pytest.raises(BadHandler):
            resources.add(broken)


async def test_resources_open_once_and_close_last_first() -> None:
    steps: list[str] = []
    resources = Resources()

    async def first() -> AsyncIterator[Mailer]:
        steps.append("open mailer")
        yield Mailer()
        steps.append("close mailer")

    async def second() -> AsyncIterator[Order]:
        steps.append("open order")
        yield Order(1)
        steps.append("close order")

    resources.add(first)
    resources.add(second)
    async with resources.opened([Mailer, Order]):
        async with resources.opened([Mailer]):
            assert isinstance(resources.get(Mailer), Mailer)
        assert resources.get(Order) == Order(1)
    assert steps == ["open mailer", "open order", "close order", "close mailer"]
    with pytest.raises(BadHandler, match="not open"):
        resources.get(Mailer)


async def test_an_override_goes_first_and_keeps_the_resource_closed(resources: Resources) -> None:
    fake = Mailer()
    with resources.override(Mailer, fake):
        async with resources.opened([Mailer]):
            assert resources.get(Mailer) is fake
    async with resources.opened([Mailer]):
        assert resources.get(Mailer) is not fake
