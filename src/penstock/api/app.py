"""The one place where routes come together: hot ones beside Starlette, the rest inside."""

from collections.abc import Awaitable, Callable, Mapping, Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from penstock.api.asgi import ClientGone
from penstock.api.auth import Authenticator
from penstock.api.functions import Functions, TableReads, response_of
from penstock.api.intake import ClaimRoute, ReservationRoute, StatusRoute
from penstock.api.problems import Answer, problem, rest_error
from penstock.api.requests import Form, HotRoute, settled
from penstock.intake.desk import Desk
from penstock.kernel.database import Database
from penstock.kernel.errors import NotFound
from penstock.kernel.http_errors import RequestRefused
from penstock.kernel.settings import Settings

CLAIM_PATH = "/rest/v1/rpc/claim_resource_and_queue"

Endpoint = Callable[[Request], Awaitable[Response]]


class App:
    """Sends a request straight to a hot route by its path, everything else to Starlette.

    A hot path that ends in a slash takes one more segment.
    """

    def __init__(self, routes: Sequence[BaseRoute], hot: Mapping[str, HotRoute]) -> None:
        self._hot = dict(hot)
        self._rest = Starlette(routes=list(routes), exception_handlers={HTTPException: _unrouted})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "http":
            hot = self.hot_route(scope["path"].removeprefix(scope.get("root_path", "")))
            if hot is not None:
                await hot(scope, receive, send)
                return
        await self._rest(scope, receive, send)

    def operations(self) -> set[tuple[str, str]]:
        """Methods and paths of Starlette's routes; hot ones judge the method by themselves."""
        return {
            (method, route.path)
            for route in self._rest.routes
            if isinstance(route, Route)
            for method in (route.methods or set()) - {"HEAD"}
        } | {("POST", path) for path in self._hot}

    def hot_route(self, path: str) -> HotRoute | None:
        """The hot route of a path, if it has one."""
        return self._hot.get(path) or self._hot.get(path[: path.rfind("/") + 1])


async def _unrouted(request: Request, error: Exception) -> Response:
    """What no route takes is answered in the same form as everything else."""
    assert isinstance(error, HTTPException), "registered for nothing else"
    form = rest_error if request.url.path.startswith("/rest/") else problem
    if error.status_code == 404:
        return response_of(form(NotFound("there is nothing at this address")))
    return response_of(form(RequestRefused(error.detail, status=error.status_code)))


def intake_routes(
    desk: Desk, *, ledger: Database | None, settings: Settings, auth: Authenticator
) -> tuple[list[BaseRoute], dict[str, HotRoute]]:
    """Intake's routes, and those that bypass the router."""
    functions = Functions(desk, auth, settings)
    reads = TableReads(desk.database, ledger, auth=auth, settings=settings)
    dlq = "/functions/v1/admin-dlq"
    routes: list[BaseRoute] = [
        Route("/v1/pools/{pool}/reservations", ReservationRoute(desk, auth), methods=["POST"]),
        Route("/v1/reservations/{reservation_id}", StatusRoute(desk, auth), methods=["GET"]),
        Route(
            "/functions/v1/bridge-worker",
            answering(functions.bridge_worker, problem),
            methods=["POST"],
        ),
        Route(dlq, answering(functions.dead_list, problem), methods=["GET"]),
        Route(f"{dlq}/replay", answering(functions.dead_replay, problem), methods=["POST"]),
        Route(f"{dlq}/discard", answering(functions.dead_discard, problem), methods=["POST"]),
        Route("/rest/v1/{table}", answering(reads.read, rest_error), methods=["GET"]),
    ]
    return routes, {CLAIM_PATH: ClaimRoute(desk, auth)}


def answering(handle: Callable[[Request], Awaitable[Answer]], form: Form) -> Endpoint:
    """A Starlette endpoint whose errors come out in the given form."""

    async def endpoint(request: Request) -> Response:
        try:
            return response_of(await settled(handle(request), form))
        except ClientGone:
            return Response(status_code=400)

    return endpoint
