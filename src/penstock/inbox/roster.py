"""Keeps a worker's routes what the database says: added, changed and taken away while it runs.

A route that cannot be used here (a secret or a library that is missing) is reported and tried
again; its events wait, and no less particular route gets them meanwhile.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic

from penstock.inbox.model import Route, Source
from penstock.inbox.queue import InboxQueue, Line
from penstock.kernel.database import PASSING_ERRORS
from penstock.kernel.errors import PenstockError
from penstock.kernel.events import Events, SourceUnusable
from penstock.kernel.handler import Handler

LOOK_S = 1.0


@dataclass(frozen=True, slots=True)
class Rows:
    """What the database says: routes, and the sources whose other events are to be ignored."""

    routes: tuple[Route, ...] = ()
    ignoring: tuple[str, ...] = ()

    @classmethod
    def of(cls, routes: Sequence[Route], sources: Sequence[Source]) -> "Rows":
        """From the tables, in an order of their own."""
        ignoring = sorted(s.source for s in sources if s.unhandled == "ignore")
        return cls(tuple(routes), tuple(ignoring))


class RouteRoster:
    """The routes of one pump. Handlers of the application go before routes of the same line."""

    def __init__(
        self,
        queue: InboxQueue,
        own: Sequence[Line],
        *,
        read: Callable[[], Awaitable[Rows]],
        bind: Callable[[Line, Route | None], Handler],
        events: Events,
    ) -> None:
        self._queue = queue
        self._own = list(own)
        self._read = read
        self._bind = bind
        self._events = events
        self._rows: Rows | None = None
        self._bound: dict[Line, tuple[Route | None, Handler]] = {}
        self._faults: dict[Line, str] = {}
        self._looked_at = float("-inf")
        self._told = False

    @property
    def handlers(self) -> Mapping[str, Handler]:
        """The handlers of all routes that can be used here, by line."""
        return {line.name: handler for line, (_, handler) in self._bound.items()}

    async def look(self, *, patient: bool, idle: bool = False) -> Mapping[str, Handler] | None:
        """The handlers by line as they should be now; None while the last answer still holds."""
        del patient, idle
        changed = False
        if monotonic() - self._looked_at >= LOOK_S:
            self._looked_at = monotonic()
            with suppress(*PASSING_ERRORS):  # the claim meets it too, waits and reports
                changed = self.take(await self._read())
        if self._told and not changed:
            return None
        self._told = True
        return self.handlers

    def take(self, rows: Rows) -> bool:
        """Make the handlers what the rows say; whether that changed anything."""
        if rows == self._rows and not self._faults:
            return False
        wanted = self._wanted(rows)
        before, faults = self._bound, self._faults
        self._bound, self._faults = {}, {}
        for line, route in wanted.items():
            kept = before.get(line)
            if kept is not None and kept[0] == route:
                self._bound[line] = kept
                continue
            try:
                self._bound[line] = (route, self._bind(line, route))
            except PenstockError as error:
                self._faults[line] = error.what
                if faults.get(line) != error.what:
                    said = f"route {line.pattern}: {error.what}"
                    self._events.emit(SourceUnusable(line.source, said))
        self._rows = rows
        self._queue.serve([*self._own, *self._bound], waiting=list(self._faults))
        return self._bound != before

    def offer(self, room: Mapping[str, int], limit: int | None) -> None:
        """Every claim asks for all lines at once."""
        del room, limit

    async def close(self) -> None:
        """Connections are the application's: other pumps may use them."""

    def _wanted(self, rows: Rows) -> dict[Line, Route | None]:
        found: dict[Line, Route | None] = {
            Line(route.source, route.pattern): route for route in rows.routes
        }
        served = {line.source for line in (*self._own, *found)}
        for source in rows.ignoring:
            if source in served:
                found.setdefault(Line(source, "*"), None)
        return {line: route for line, route in found.items() if line not in self._own}
