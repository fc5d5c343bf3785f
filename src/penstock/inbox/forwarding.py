"""Handlers that routes stand for: send an event on over HTTP, or hand it to a SQL function."""

import importlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.inbox import store
from penstock.inbox.model import Route
from penstock.inbox.queue import EVENT_ID_HEADER, SOURCE_HEADER
from penstock.kernel.errors import BadSetting, MissingExtra
from penstock.kernel.event import Batch, Event
from penstock.kernel.http_errors import AddressRefused, DownstreamFailed
from penstock.kernel.outgoing_secrets import outgoing_secret
from penstock.kernel.replies import verdict_of, verdict_of_failure
from penstock.kernel.secrets import Secret
from penstock.kernel.settings import Settings
from penstock.kernel.tx import Tx
from penstock.kernel.verdict import Reject, Verdict

if TYPE_CHECKING:
    from penstock.kernel.outgoing import Outgoing


async def ignore(events: Batch[Any]) -> None:
    """Take events that nobody asked for, and be done with them."""
    del events


class Forwarding:
    """Makes the handlers of routes and holds the HTTP clients they share."""

    def __init__(self) -> None:
        self._clients: dict[str | None, Outgoing] = {}

    def handler(self, route: Route, settings: Settings) -> Callable[..., Awaitable[object]]:
        """What a route does with an event."""
        if route.kind == "sql":
            return _to_function(route.target)
        return _to_endpoint(route.target, self._client(route.secret_ref, settings))

    def _client(self, secret_ref: str | None, settings: Settings) -> "Outgoing":
        client = self._clients.get(secret_ref)
        if client is None:
            try:
                outgoing = importlib.import_module("penstock.kernel.outgoing")
            except ModuleNotFoundError as error:
                raise MissingExtra(
                    "an HTTP route needs aiohttp", todo="pip install 'penstock[http]'"
                ) from error
            client = outgoing.Outgoing.from_settings(settings)
            if secret_ref is not None:
                client = outgoing.Outgoing(
                    client.policy, secrets=(_secret(secret_ref, settings),), limits=client.limits
                )
            self._clients[secret_ref] = client
        return client

    async def close(self) -> None:
        """Close every client."""
        clients, self._clients = list(self._clients.values()), {}
        for client in clients:
            await client.close()


def _secret(reference: str, settings: Settings) -> Secret:
    try:
        return outgoing_secret(reference, settings)
    except ValueError as error:
        raise BadSetting(f"the secret of a route {error}") from None


def _to_endpoint(url: str, client: "Outgoing") -> Callable[..., Awaitable[object]]:
    async def forward(event: Event[Any]) -> Verdict:
        """Send the bytes as received; the receiver sees one constant message id."""
        headers = {
            "content-type": event.headers.get("content-type", "application/json"),
            SOURCE_HEADER: event.headers[SOURCE_HEADER],
            EVENT_ID_HEADER: event.headers[EVENT_ID_HEADER],
        }
        try:
            reply = await client.post(url, event.raw, message_id=str(event.id), headers=headers)
        except AddressRefused as error:
            return Reject("ADDRESS_REFUSED", error.what)
        except DownstreamFailed as error:
            return verdict_of_failure(error, keyed=True)
        return verdict_of(reply)

    return forward


def _to_function(name: str) -> Callable[..., Awaitable[object]]:
    async def forward(event: Event[Any], tx: Tx) -> None:
        """Call the function in the transaction that finishes the event: exactly one effect."""
        told = {
            "id": str(event.id),
            "event_id": event.headers[EVENT_ID_HEADER],
            "source": event.headers[SOURCE_HEADER],
            "type": event.topic,
            "occurred_at": event.occurred_at.isoformat(),
            "data": event.data,
        }
        await store.call_route(tx, name, msgspec.json.encode(told).decode())

    return forward
