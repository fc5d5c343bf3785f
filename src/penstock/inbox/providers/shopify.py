"""Shopify: `X-Shopify-Hmac-Sha256`, base64 over the body; topic and id in unsigned headers."""

import base64
import hmac
from uuid import UUID

from penstock.inbox.providers.documents import as_json, content_id, one_document
from penstock.inbox.providers.scheme import Claimed, Provider, Request, Verified
from penstock.inbox.providers.unsigned import ByHeaderOrBody, delivery_id

HEADER = "x-shopify-hmac-sha256"
TOPIC = "x-shopify-topic"
DELIVERY = "x-shopify-webhook-id"
SHOP = "x-shopify-shop-domain"


class Shopify(Provider):
    """No timestamp, and the delivery id is not signed: see the option `event_id`."""

    name = "shopify"
    timestamped = False
    headers_kept = (HEADER, TOPIC, DELIVERY, SHOP)
    options_type = ByHeaderOrBody

    def claimed(self, request: Request) -> Claimed:
        """One header."""
        return Claimed((request.body,), (request.headers.required(HEADER).encode(),))

    def code(self, digest: bytes) -> bytes:
        """Base64."""
        return base64.b64encode(digest)

    def read(self, request: Request) -> Verified:
        """One event per delivery; the topic `orders/paid` becomes the type `orders.paid`."""
        topic = request.headers.hint(TOPIC).replace("/", ".")
        return one_document(
            request.body,
            event_id=lambda _: delivery_id(self.options, request, DELIVERY),
            event_type=lambda _: topic,
        )

    def sign(self, secret: str, body: bytes, *, at_s: int, event_type: str = "") -> dict[str, str]:
        """As Shopify does; the same body gets the same delivery id."""
        del at_s
        return {
            HEADER: self.code(hmac.digest(self.key(secret), body, "sha256")).decode(),
            TOPIC: event_type.replace(".", "/") or "orders/paid",
            DELIVERY: str(UUID(content_id(body).removeprefix("sha256:")[:32])),
        }

    def sample(self, event_id: str, event_type: str) -> bytes:
        """An order."""
        del event_type
        order = {"id": 450789469, "admin_graphql_api_id": event_id, "total_price": "409.94"}
        return as_json(order).encode()
