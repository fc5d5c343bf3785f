"""What a handler's parameters mean: decided once, at registration, from its annotations.

The first parameter is the event (or the batch). Every other one is injected by its type: the
transaction, the attempt, or what a resource yields. A parameter that cannot be injected is an error
at registration, where its author sees it, not at the first event.
"""

import inspect
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, get_args, get_origin, get_type_hints

from penstock.kernel.errors import BadHandler
from penstock.kernel.event import Attempt, Event
from penstock.kernel.tx import Tx

ResourceFactory = Callable[[], AsyncIterator[Any]]
_MISSING = object()


@dataclass(frozen=True, slots=True)
class Plan:
    """How to call a handler: what its first parameter holds and what goes to the others."""

    name: str
    batch: bool
    is_async: bool
    model: Any
    tx: str | None
    attempt: str | None
    resources: Mapping[str, type]


class Resources:
    """What handlers may ask for by type: opened once per run, replaced by tests."""

    def __init__(self) -> None:
        self._factories: dict[type, ResourceFactory] = {}
        self._overrides: dict[type, list[object]] = {}
        self._open: dict[type, object] = {}
        self._stack = AsyncExitStack()
        self._users = 0

    def add(self, factory: ResourceFactory) -> None:
        """Register an async generator function by the type it says it yields."""
        if not inspect.isasyncgenfunction(factory):
            raise BadHandler(
                f"resource {_name(factory)} is not an async generator function",
                todo="write `async def name() -> AsyncIterator[Type]:` with one `yield`.",
            )
        kind = _yielded(factory)
        if kind in self._factories:
            raise BadHandler(f"two resources yield {kind.__qualname__}")
        self._factories[kind] = factory

    def known(self) -> list[type]:
        """The types that can be asked for."""
        return [*self._factories, *(kind for kind, stack in self._overrides.items() if stack)]

    @asynccontextmanager
    async def opened(self, kinds: Iterable[type]) -> AsyncIterator[None]:
        """Hold these resources open while the block runs; one that is overridden is not opened.

        Blocks may overlap: what was opened is closed, last first, when the last of them ends.
        """
        self._users += 1
        try:
            for kind in kinds:
                if kind in self._open or self._overrides.get(kind):
                    continue
                manager = asynccontextmanager(self._factories[kind])()
                self._open[kind] = await self._stack.enter_async_context(manager)
            yield
        finally:
            self._users -= 1
            if not self._users:
                self._open.clear()
                await self._stack.aclose()

    def get(self, kind: type) -> object:
        """The value for a type: the innermost override, else the open resource."""
        overrides = self._overrides.get(kind)
        if overrides:
            return overrides[-1]
        value = self._open.get(kind, _MISSING)
        if value is _MISSING:
            raise BadHandler(f"resource {kind.__qualname__} is not open")
        return value

    @contextmanager
    def override(self, kind: type, value: object) -> Iterator[None]:
        """Put a value in the place of a resource while the block runs."""
        self._overrides.setdefault(kind, []).append(value)
        try:
            yield
        finally:
            self._overrides[kind].pop()


def plan_for(function: Callable[..., object], resources: Resources, *, batch: bool) -> Plan:
    """Read a handler's signature; raises BadHandler with the list of what can be injected."""
    name = _name(function)
    hints = _hints(function, name)
    first, *others = _parameters(function, name)
    found: dict[str, type] = {}
    for parameter in others:
        kind = hints.get(parameter.name)
        if kind in (Tx, Attempt) or kind in resources.known():
            found[parameter.name] = kind
        elif parameter.default is inspect.Parameter.empty:
            raise _cannot_inject(name, parameter, kind=kind, known=resources.known())
    is_async = _is_async(function, name)
    tx = _the_one(found, Tx, name)
    if tx is not None and not is_async:
        raise BadHandler(
            f"handler {name} is a plain `def` and asks for tx",
            happened="the transaction belongs to the event loop, and `def` runs in a thread.",
            todo="make it `async def`, or open your own transaction and call event.finish_sync.",
        )
    return Plan(
        name=name,
        batch=batch,
        is_async=is_async,
        model=_model_of(hints.get(first.name, Any), name, batch=batch),
        tx=tx,
        attempt=_the_one(found, Attempt, name),
        resources={key: kind for key, kind in found.items() if kind not in (Tx, Attempt)},
    )


def _name(function: object) -> str:
    return getattr(function, "__qualname__", None) or type(function).__qualname__


def _hints(function: Callable[..., object], name: str) -> dict[str, Any]:
    target: Any = function if inspect.isroutine(function) else type(function).__call__
    try:
        return get_type_hints(inspect.unwrap(target))
    except NameError as error:
        raise BadHandler(
            f"an annotation of {name} cannot be resolved: {error}",
            todo="define the annotated types at module level, above the handler.",
        ) from error


def _yielded(factory: ResourceFactory) -> type:
    returned = _hints(factory, _name(factory)).get("return")
    arguments = get_args(returned)
    if get_origin(returned) not in (AsyncIterator, AsyncGenerator) or not arguments:
        raise BadHandler(
            f"resource {_name(factory)} does not say what it yields",
            todo="annotate it as `-> AsyncIterator[Type]`.",
        )
    kind: type = arguments[0]
    return kind


def _parameters(function: Callable[..., object], name: str) -> list[inspect.Parameter]:
    parameters = list(inspect.signature(function).parameters.values())
    if not parameters:
        raise BadHandler(f"handler {name} takes no event", todo="its first parameter is the event.")
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise BadHandler(
                f"handler {name} takes {parameter}",
                happened="parameters are injected by their types, so each must be named.",
            )
    for parameter in parameters[1:]:
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise BadHandler(f"parameter {parameter.name} of {name} cannot be given by name")
    return parameters


def _is_async(function: Callable[..., object], name: str) -> bool:
    target = function if inspect.isroutine(function) else type(function).__call__
    if inspect.isasyncgenfunction(target) or inspect.isgeneratorfunction(target):
        raise BadHandler(f"handler {name} has a `yield`", todo="return a verdict, or nothing.")
    return inspect.iscoroutinefunction(target)


def _the_one(found: Mapping[str, type], kind: type, name: str) -> str | None:
    names = [parameter for parameter, asked in found.items() if asked is kind]
    if len(names) > 1:
        raise BadHandler(f"handler {name} asks for {kind.__name__} twice: {', '.join(names)}")
    return names[0] if names else None


def _model_of(annotation: Any, name: str, *, batch: bool) -> Any:
    """The T of Event[T] or Batch[T]; Any where the annotation leaves it open."""
    if annotation is Any:
        return Any
    inner = annotation
    if batch:
        if get_origin(annotation) not in (Sequence, list, tuple):
            raise _first(name, "a batch handler takes `events: Batch[Model]`")
        arguments = get_args(annotation)
        inner = arguments[0] if arguments else Event
    if inner is Event:
        return Any
    if get_origin(inner) is not Event:
        raise _first(name, "a handler takes `event: Event[Model]`")
    model = get_args(inner)[0]
    return Any if type(model).__name__ == "TypeVar" else model


def _first(name: str, rule: str) -> BadHandler:
    return BadHandler(f"the first parameter of {name} is not an event", todo=f"{rule} first.")


def _cannot_inject(
    name: str, parameter: inspect.Parameter, *, kind: object, known: list[type]
) -> BadHandler:
    offered = ", ".join(["Tx", "Attempt", *(kind.__qualname__ for kind in known)])
    asked = "has no annotation" if kind is None else f"asks for {_name(kind)}"
    return BadHandler(
        f"parameter {parameter.name} of {name} {asked}, which nothing provides",
        happened=f"what can be injected here: {offered}.",
        todo="register a resource that yields the type, above the handler, or give a default.",
    )
