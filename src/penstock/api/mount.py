"""The HTTP interface as one ASGI application, mounted in the user's or served alone.

A mounted application never sees lifespan events; whoever mounts it passes `lifespan=ps.lifespan()`
to the outer one. If that line is missing, every request is answered 503 and the log says why.
"""

import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute
from starlette.types import Receive, Scope, Send

from penstock.api.app import App, intake_routes
from penstock.api.auth import Authenticator
from penstock.api.health import Health, database_check
from penstock.api.inbox import inbox_routes
from penstock.api.outbox import Relayer, outbox_routes
from penstock.api.requests import HotRoute
from penstock.inbox.metrics import reader as inbox_counters
from penstock.intake.public import Intake
from penstock.kernel.errors import NotOpened
from penstock.kernel.events import Subscriber
from penstock.kernel.lending import Lending
from penstock.kernel.metrics import Metrics, read_stats
from penstock.outbox.metrics import reader as destination_gauges

_log = logging.getLogger("penstock.api")


class Application(Relayer, Protocol):
    """What is asked of the application object."""

    @property
    def is_open(self) -> bool:
        """Whether it is opened."""
        ...

    @property
    def lending(self) -> Lending:
        """What is open."""
        ...

    intake: Intake

    def lifespan(
        self, *, work: bool = False
    ) -> Callable[[object], AbstractAsyncContextManager[None]]:
        """Opens and closes it."""
        ...

    def subscribe(self, subscriber: Subscriber) -> None:
        """Let a function see every observation."""
        ...


class Mounted:
    """The interface of an application; its routes are built when it is first asked."""

    def __init__(
        self,
        application: Application,
        *,
        only: frozenset[str] = frozenset(),
        work: bool = False,
    ) -> None:
        self._application = application
        self._only = only
        self._work = work
        self._lending: Lending | None = None
        self._inner: App | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or run the lifespan where this is the outermost application."""
        if scope["type"] == "lifespan":
            # Starlette speaks the protocol; no route of this one is ever reached.
            lifespan = self._application.lifespan(work=self._work)
            await Starlette(lifespan=lifespan)(scope, receive, send)
        elif not self._application.is_open:
            _log.error("penstock_not_opened: pass lifespan=ps.lifespan() to the outer application")
            await _not_opened()(scope, receive, send)
        else:
            await self._routes()(scope, receive, send)

    def hot_route(self, path: str) -> HotRoute | None:
        """The route of a path that needs no ASGI, if there is one and the application is open."""
        return self._routes().hot_route(path) if self._application.is_open else None

    def operations(self) -> set[tuple[str, str]]:
        """Methods and paths of an open application."""
        return self._routes().operations()

    def _routes(self) -> App:
        lending = self._application.lending
        if self._inner is None or lending is not self._lending:
            self._lending = lending
            self._inner = self._build()
        return self._inner

    def _build(self) -> App:
        lending = self._application.lending
        auth = Authenticator(lending.settings)
        routes: list[BaseRoute] = []
        hot: dict[str, HotRoute] = {}
        if not self._only:
            routes += health_of(self._application).routes()
        if not self._only or "intake" in self._only:
            more, hot = intake_routes(
                self._application.intake.desk,
                ledger=lending.ledger,
                settings=lending.settings,
                auth=auth,
            )
            routes += more
        if not self._only or "outbox" in self._only:
            routes += outbox_routes(self._application, lending)
        if not self._only or "inbox" in self._only:
            hot |= inbox_routes(lending)
        return App(routes, hot)


def health_of(application: Application) -> Health:
    """What the health routes of an open application ask."""
    lending = application.lending
    metrics = Metrics(read_stats(lending.database))
    metrics.more.append(inbox_counters(lending.database))
    metrics.more.append(destination_gauges(lending.database))
    application.subscribe(metrics.subscriber)
    return Health(
        ready=database_check(lending.database),
        metrics=metrics,
        metrics_key=lending.settings.metrics_key,
    )


def _not_opened() -> JSONResponse:
    error = NotOpened()
    return JSONResponse(
        {"title": error.entry.title, "status": 503, "code": error.code, "detail": error.todo},
        status_code=503,
        media_type="application/problem+json",
    )
