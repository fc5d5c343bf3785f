"""Keeps a worker's sinks what the database says: opened, replaced, closed, while it runs.

Destinations are looked at once a second. One that cannot be used here (a wrong configuration, a
secret or a library that is missing, a broker that is away) is reported and tried again; its
deliveries wait, and no other destination notices.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Any, TypeAlias

from penstock.kernel.database import PASSING_ERRORS
from penstock.kernel.errors import PenstockError
from penstock.kernel.events import DestinationUnusable
from penstock.kernel.handler import Handler
from penstock.kernel.handlers import Runtime
from penstock.kernel.lending import Lending
from penstock.kernel.plain import bind
from penstock.kernel.secrets import mask_text
from penstock.outbox import destinations
from penstock.outbox.claims import Claims, lane_of
from penstock.outbox.destinations import Row
from penstock.outbox.sending import SinkHandler, WeighedHandler
from penstock.outbox.sinks import function
from penstock.outbox.sinks.factory import destination_of, make_sink
from penstock.outbox.sinks.sink import Destination
from penstock.outbox.tally import Tally

LOOK_S = 1.0
IDLE_LOOK_S = 0.8  # while there is nothing to do: so that an event seldom waits for a look
FIRST_OPENING_S = 5.0
OPEN_S = 30.0
TRY_AGAIN_S = 10.0
TELL_AGAIN_S = 60.0
FAULT_LENGTH_MAX = 500
UNTOLD = ""  # what the worker before this one told may not hold any more

Close: TypeAlias = Callable[[], Coroutine[Any, Any, None]]


@dataclass(slots=True)
class _Served:
    """One destination here: being opened, in use, or unusable for a reason."""

    row: Row
    destination: Destination | None = None
    handler: Handler | None = None
    close: Close | None = None
    opening: "asyncio.Task[None] | None" = None
    fault: str | None = None
    told: str | None = UNTOLD
    told_at: float = 0.0
    try_at: float = 0.0


class Relay:
    """The roster of destinations for one pump."""

    def __init__(self, lending: Lending, runtime: Runtime, claims: Claims) -> None:
        self._lending = lending
        self._runtime = runtime
        self._claims = claims
        self._served: dict[str, _Served] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._tally = Tally(lending.database, lending.events, claims)
        self._telling: asyncio.Task[None] | None = None
        self._looked_at = float("-inf")
        self._changed = False

    async def look(self, *, patient: bool, idle: bool = False) -> Mapping[str, Handler] | None:
        """The handlers of all destinations that can be used here now; None if nothing changed."""
        if self._telling is None:
            self._telling = asyncio.create_task(self._tally.run())
        elif self._telling.done():
            self._telling.result()  # a worker that tells nobody would keep every breaker closed
        first = self._looked_at == float("-inf")
        if monotonic() - self._looked_at >= (IDLE_LOOK_S if idle else LOOK_S):
            self._looked_at = monotonic()
            await self._refresh()
            if first and patient:
                await self._wait_for_openings()
        if not self._changed:
            return None
        self._changed = False
        return {
            lane_of(name): served.handler
            for name, served in self._served.items()
            if served.handler is not None
        }

    def offer(self, room: Mapping[str, int], limit: int | None) -> None:
        """How many deliveries each destination may be given."""
        self._claims.offer(room, limit)

    async def close(self) -> None:
        """Tell what is left to tell and close every sink."""
        if self._telling is not None:
            self._telling.cancel()
            await asyncio.gather(self._telling, return_exceptions=True)
            await self._tally.finish()
        for served in self._served.values():
            self._drop(served)
        self._served.clear()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _refresh(self) -> None:
        try:
            async with self._lending.database.connection() as conn:
                rows = await destinations.serving(conn)
        except PASSING_ERRORS:
            return  # the claim meets it too, waits and reports
        for name in self._served.keys() - {row.name for row in rows}:
            self._drop(self._served.pop(name))
        for row in rows:
            self._serve(row)
        await self._tell_faults()

    def _serve(self, row: Row) -> None:
        """Open a destination that is new, has changed, or was unusable a while ago."""
        try:
            wanted: Destination | None = destination_of(row, self._lending.settings)
            fault = None
        except PenstockError as error:
            wanted, fault = None, error.what
        served = self._served.get(row.name)
        if served is None or served.row != row or served.destination != wanted:
            if served is not None:
                self._drop(served)
            served = self._served[row.name] = _Served(row, wanted)
            self._changed = True
        if fault is not None:
            self._fail(served, fault)
        elif served.handler is None and served.opening is None and monotonic() >= served.try_at:
            served.opening = self._start(self._open(served))

    async def _open(self, served: _Served) -> None:
        assert served.destination is not None, "only what has its secrets is opened"
        try:
            served.handler, served.close = await self._handler(served.destination)
        except Exception as error:  # the boundary to drivers: whatever it was, the others go on
            said = error.what if isinstance(error, PenstockError) else str(error)
            self._fail(served, f"{type(error).__name__}: {said}")
        else:
            served.fault = None
            self._changed = True
        finally:
            served.opening = None
        await self._tell_faults()  # a pump with nothing to do may not look again for long

    async def _handler(self, destination: Destination) -> tuple[Handler, Close | None]:
        settings = self._lending.settings
        if destination.kind == function.KIND:  # no sink: its effect and the finish are one commit
            registration = function.registration(destination, source=settings.event_source)
            bound = bind(registration, self._runtime)
            return WeighedHandler(destination, bound, self._tally), None
        sink = make_sink(destination, settings)
        try:
            async with asyncio.timeout(OPEN_S):
                await sink.open()
        except BaseException:
            await sink.close()
            raise
        handler = SinkHandler(
            destination,
            sink,
            self._runtime,
            source=settings.event_source,
            tally=self._tally,
        )
        return handler, handler.close

    def _fail(self, served: _Served, fault: str) -> None:
        fault = mask_text(fault)[:FAULT_LENGTH_MAX]
        served.try_at = monotonic() + TRY_AGAIN_S
        if served.fault != fault:
            served.fault = fault
            self._lending.events.emit(DestinationUnusable(served.row.name, fault))

    def _drop(self, served: _Served) -> None:
        self._changed = True
        if served.opening is not None:
            served.opening.cancel()
        close, served.handler, served.close = served.close, None, None
        if close is not None:
            self._start(close())

    async def _tell_faults(self) -> None:
        """Let operators see what cannot be used; repeated, so that what is old is known as old."""
        now = monotonic()
        due = {
            name: served.fault
            for name, served in self._served.items()
            if (served.fault or served.handler)
            and (
                served.fault != served.told
                or (served.fault and now - served.told_at > TELL_AGAIN_S)
            )
        }
        if not due:
            return
        try:
            async with self._lending.database.connection() as conn:
                await destinations.fault(conn, due)
        except PASSING_ERRORS:
            return
        for name, fault in due.items():
            if served := self._served.get(name):
                served.told, served.told_at = fault, now

    async def _wait_for_openings(self) -> None:
        """So that working a queue off once does not end before it has begun."""
        opening = [s.opening for s in self._served.values() if s.opening is not None]
        if opening:
            await asyncio.wait(opening, timeout=FIRST_OPENING_S)

    def _start(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
