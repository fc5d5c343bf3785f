"""A plain HMAC, described by configuration: for senders that no other scheme fits."""

import base64
import binascii
import hmac
import re
from collections.abc import Mapping
from typing import Literal

import msgspec

from penstock.inbox.payload import path
from penstock.inbox.providers.documents import as_json, content_id, one_document
from penstock.inbox.providers.scheme import (
    Claimed,
    Provider,
    Reason,
    Refused,
    Request,
    Verified,
)
from penstock.kernel.errors import BadSetting

_PLACES = re.compile(r"(\{(?:body|timestamp|id)\})")


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How a sender signs, and where it says which event it tells of."""

    header: str = "x-signature"
    hash: Literal["sha256", "sha512", "sha1"] = "sha256"
    encoding: Literal["hex", "base64"] = "hex"
    prefix: str = "sha256="
    key_encoding: Literal["text", "base64", "hex"] = "text"
    signed: str = "{body}"
    timestamp_header: str = ""
    id_header: str = ""
    id_path: str = "id"
    type_header: str = ""
    type_path: str = "type"


class GenericHmac(Provider):
    """Signs what the template says. Without `{timestamp}` in it, only dedupe stops repeats."""

    name = "hmac"
    options_type = Options

    def __init__(self, options: Mapping[str, object] | None = None) -> None:
        super().__init__(options)
        chosen = self.options = _lowered(self.options)
        self.hash_name = chosen.hash
        self.timestamped = bool(chosen.timestamp_header)
        named = (chosen.header, chosen.timestamp_header, chosen.id_header, chosen.type_header)
        self.headers_kept = tuple(name for name in named if name)
        self._parts = [part for part in _PLACES.split(chosen.signed) if part]
        self._id = path(chosen.id_path)
        self._type = path(chosen.type_path)
        self._check(chosen)

    def _check(self, chosen: Options) -> None:
        if "{body}" not in self._parts:
            raise BadSetting("signed must hold {body}: else the body could be anything")
        if bool(chosen.timestamp_header) != ("{timestamp}" in self._parts):
            raise BadSetting("timestamp_header and {timestamp} in signed want each other")
        if "{id}" in self._parts and not chosen.id_header:
            raise BadSetting("{id} in signed wants an id_header")

    def key(self, secret: str) -> bytes:
        """The secret as text, or decoded."""
        try:
            if self.options.key_encoding == "base64":
                return base64.b64decode(secret, validate=True)
            if self.options.key_encoding == "hex":
                return bytes.fromhex(secret)
        except (binascii.Error, ValueError):
            wanted = self.options.key_encoding
            raise BadSetting(f"the secret of this source must be {wanted}") from None
        return secret.encode()

    def claimed(self, request: Request) -> Claimed:
        """By the configured headers and template."""
        chosen = self.options
        code = request.headers.required(chosen.header)
        timestamp = identity = None
        if chosen.timestamp_header:
            timestamp = request.headers.one(chosen.timestamp_header)
            if not timestamp:
                raise Refused(Reason.TIMESTAMP_MALFORMED)
        if "{id}" in self._parts:
            identity = request.headers.required(chosen.id_header)
        text = self._text(request.body, timestamp or "", identity or "")
        return Claimed((text,), (code.encode(),), timestamp)

    def _text(self, body: bytes, timestamp: str, identity: str) -> bytes:
        values = {"{body}": body, "{timestamp}": timestamp.encode(), "{id}": identity.encode()}
        return b"".join(values.get(part, part.encode()) for part in self._parts)

    def code(self, digest: bytes) -> bytes:
        """In the configured encoding, after the prefix."""
        hexadecimal = self.options.encoding == "hex"
        text = digest.hex().encode() if hexadecimal else base64.b64encode(digest)
        prefix: bytes = self.options.prefix.encode()
        return prefix + text

    def read(self, request: Request) -> Verified:
        """One event per delivery; id and type by header, else by path."""
        chosen = self.options
        headers = request.headers
        return one_document(
            request.body,
            event_id=lambda document: (
                headers.hint(chosen.id_header) if chosen.id_header else self._id(document)
            ),
            event_type=lambda document: (
                headers.hint(chosen.type_header) if chosen.type_header else self._type(document)
            ),
        )

    def sign(self, secret: str, body: bytes, *, at_s: int, event_type: str = "") -> dict[str, str]:
        """As configured; the same body gets the same id."""
        chosen = self.options
        identity = content_id(body)[7:39] if chosen.id_header else ""
        timestamp = str(at_s) if chosen.timestamp_header else ""
        text = self._text(body, timestamp, identity)
        code = self.code(hmac.digest(self.key(secret), text, chosen.hash)).decode()
        named = {
            chosen.header: code,
            chosen.timestamp_header: timestamp,
            chosen.id_header: identity,
            chosen.type_header: event_type,
        }
        return {name: value for name, value in named.items() if name and value}

    def sample(self, event_id: str, event_type: str) -> bytes:
        """A body with id and type where the defaults look for them."""
        return as_json({"id": event_id, "type": event_type or "thing.happened"}).encode()


def _lowered(options: Options) -> Options:
    return msgspec.structs.replace(
        options,
        header=options.header.lower(),
        timestamp_header=options.timestamp_header.lower(),
        id_header=options.id_header.lower(),
        type_header=options.type_header.lower(),
    )
