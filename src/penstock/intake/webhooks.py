"""The two webhooks of a pool: validation before the commit, and the commit itself."""

from importlib import import_module
from typing import TYPE_CHECKING

import msgspec

from penstock.intake.messages import Message
from penstock.kernel.errors import MissingExtra
from penstock.kernel.http_errors import AddressRefused, DownstreamFailed
from penstock.kernel.replies import Reply
from penstock.kernel.settings import Settings

if TYPE_CHECKING:
    from penstock.kernel.outgoing import Outgoing

TRACE_HEADERS = ("traceparent", "tracestate")


class Webhooks:
    """Sends messages to receivers; opens its client when first needed."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._client: Outgoing | None = None

    async def close(self) -> None:
        """Close the client's connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def validate(self, message: Message) -> Reply | str:
        """Ask the validation webhook, keyed by reservation; a text is the code of a failure."""
        assert message.validation_url is not None, "asked only where there is one"
        return await self._post(
            message,
            message.validation_url,
            state="queued",
            key=str(message.id),
            message_id=f"{message.id}.validation",
        )

    async def commit(self, message: Message) -> Reply | str:
        """Send the commit; a resource is never offered again once this began, so it is the key."""
        assert message.commit_url is not None, "asked only where there is one"
        return await self._post(
            message,
            message.commit_url,
            state="validated",
            key=str(message.resource),
            message_id=str(message.id),
        )

    async def _post(
        self, message: Message, url: str, *, state: str, key: str, message_id: str
    ) -> Reply | str:
        document = msgspec.json.decode(message.text)
        body = msgspec.json.encode({**document, "state": state})
        headers = {
            "content-type": "application/json",
            "x-idempotency-key": key,
            "x-reservation-id": str(message.id),
        }
        for name in TRACE_HEADERS:
            if name in message.headers:
                headers[name] = message.headers[name]
        try:
            return await self._open().post(url, body, message_id=message_id, headers=headers)
        except AddressRefused:
            return "ADDRESS_REFUSED"
        except DownstreamFailed as failure:
            return failure.kind

    def _open(self) -> "Outgoing":
        if self._client is None:
            try:
                outgoing = import_module("penstock.kernel.outgoing")
            except ModuleNotFoundError as error:
                raise MissingExtra(
                    "webhooks need aiohttp", todo="pip install 'penstock[http]'"
                ) from error
            self._client = outgoing.Outgoing.from_settings(self._settings)
        assert self._client is not None, "opened above"
        return self._client
