"""What every webhook scheme has in common: a request claims a signature, the claim is checked once.

A scheme says what was signed and where the signature stands; comparing, tolerance and rotation are
done here, in one place. Signatures are compared in the form in which they are sent, so that no two
spellings of one signature exist.
"""

import hmac
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, ClassVar

import msgspec

from penstock.kernel.errors import BadSetting
from penstock.kernel.secrets import Secret

TOLERANCE_S = 300
CANDIDATES_MAX = 16
_DIGITS = re.compile(r"[0-9]{1,14}", re.ASCII)
_NOBODYS_KEY = b"no source has this key"
_MILLISECONDS_FROM = 10**11  # the year 5138 in seconds, 1973 in milliseconds


class Reason(StrEnum):
    """Why a request is not believed. Callers are told none of it."""

    SOURCE_UNKNOWN = "source_unknown"
    SIGNATURE_MISSING = "signature_missing"
    SIGNATURE_INVALID = "signature_invalid"
    HEADER_MALFORMED = "header_malformed"
    TIMESTAMP_MALFORMED = "timestamp_malformed"
    TIMESTAMP_OUTSIDE = "timestamp_outside_tolerance"


class Refused(Exception):
    """Ends the reading of a request; becomes a Rejected."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.value)
        self.reason = reason


class Headers:
    """Request headers as they came: bytes, with repeats. Names are lower-case."""

    __slots__ = ("_pairs", "_repeated", "_values")

    def __init__(self, pairs: Iterable[tuple[bytes, bytes]]) -> None:
        self._pairs = tuple(pairs)
        self._values = dict(self._pairs)
        self._repeated = len(self._values) != len(self._pairs)

    @classmethod
    def of(cls, headers: Mapping[str, str]) -> "Headers":
        """Headers from a plain mapping."""
        return cls((name.lower().encode(), value.encode()) for name, value in headers.items())

    def one(self, name: str) -> str | None:
        """The only value of a header; refused when it stands twice or is not printable ASCII."""
        wanted = name.encode()
        found = self._values.get(wanted)
        if found is None:
            return None
        if not found.isascii() or (self._repeated and self._count(wanted) > 1):
            raise Refused(Reason.HEADER_MALFORMED)
        text = found.decode("ascii")
        if not text.isprintable():
            raise Refused(Reason.HEADER_MALFORMED)
        return text

    def _count(self, wanted: bytes) -> int:
        return sum(name == wanted for name, _ in self._pairs)

    def required(self, name: str) -> str:
        """The same for the header that carries the signature."""
        text = self.one(name)
        if not text:
            raise Refused(Reason.SIGNATURE_MISSING)
        return text

    def hint(self, name: str) -> str:
        """A header that decides nothing; empty when it is absent or malformed."""
        try:
            return self.one(name) or ""
        except Refused:
            return ""

    def kept(self, names: Iterable[str]) -> dict[str, str]:
        """Those of an allow-list that are there and well-formed."""
        return {name: text for name in names if (text := self.hint(name))}

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        return iter(self._pairs)


class Request(msgspec.Struct, frozen=True):
    """A delivery as it arrived; nothing in it is believed yet."""

    body: bytes
    headers: Headers
    method: str = "POST"
    query: str = ""


class InboundEvent(msgspec.Struct, frozen=True):
    """One event of a delivery. Without a payload it is dead at once: no handler could take it.

    `raw` is the whole body, or this event's part of a delivery that tells of several.
    """

    event_id: str
    event_type: str
    raw: bytes
    payload: str | None


class Reply(msgspec.Struct, frozen=True):
    """An answer that a handshake wants; nothing is stored."""

    body: bytes = b""
    content_type: str = "text/plain; charset=utf-8"


class Verified(msgspec.Struct, frozen=True):
    """A genuine delivery: its events, or the reply to a handshake."""

    events: tuple[InboundEvent, ...] = ()
    reply: Reply | None = None


class Rejected(msgspec.Struct, frozen=True):
    """A request that is not believed."""

    reason: Reason


class Claimed(msgspec.Struct, frozen=True):
    """What a request says of its signature: the texts that may have been signed, and the codes."""

    texts: tuple[bytes, ...]
    codes: tuple[bytes, ...]
    timestamp: str | None = None


class NoOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A scheme without anything to configure."""


class Provider(ABC):
    """One scheme, configured for one source."""

    name: ClassVar[str]
    hash_name: str = "sha256"
    timestamped: bool = True
    signs_query: bool = False
    headers_kept: tuple[str, ...] = ()
    body_bytes_max: int | None = None
    options_type: ClassVar[type[Any]] = NoOptions

    def __init__(self, options: Mapping[str, object] | None = None) -> None:
        try:
            self.options = msgspec.convert(dict(options or {}), self.options_type)
        except msgspec.ValidationError as error:
            raise BadSetting(f"options of a {self.name} source: {error}") from None

    @abstractmethod
    def claimed(self, request: Request) -> Claimed:
        """What the request says of its signature; raises Refused."""

    @abstractmethod
    def code(self, digest: bytes) -> bytes:
        """A digest in the form in which this scheme sends it."""

    @abstractmethod
    def read(self, request: Request) -> Verified:
        """The events of a genuine delivery; never fails, whatever the body holds."""

    @abstractmethod
    def sign(self, secret: str, body: bytes, *, at_s: int, event_type: str = "") -> dict[str, str]:
        """The headers that the provider would send with this body."""

    @abstractmethod
    def sample(self, event_id: str, event_type: str) -> bytes:
        """A small body as the provider would send it."""

    def key(self, secret: str) -> bytes:
        """The key that a secret stands for."""
        return secret.encode()

    def handshake(self, request: Request, tokens: Sequence[Secret]) -> Reply | None:
        """The reply to a question that comes without a signature; None where it is none."""
        del request, tokens
        return None

    def verify(
        self,
        request: Request,
        secrets: Sequence[Secret],
        *,
        now_s: float,
        tolerance_s: int = TOLERANCE_S,
    ) -> Verified | Rejected:
        """Believe a request or not. Every live secret is tried against every signature sent."""
        try:
            claimed = self.claimed(request)
            if not 1 <= len(claimed.codes) <= CANDIDATES_MAX:
                raise Refused(Reason.HEADER_MALFORMED)
            if claimed.timestamp is not None:
                check_timestamp(claimed.timestamp, now_s=now_s, tolerance_s=tolerance_s)
        except Refused as refused:
            spend_as_if_verified(request.body)
            return Rejected(refused.reason)
        if not secrets:
            spend_as_if_verified(request.body)
        if not self._matches(claimed, secrets):
            return Rejected(Reason.SIGNATURE_INVALID)
        return self.read(request)

    def _matches(self, claimed: Claimed, secrets: Sequence[Secret]) -> bool:
        answers = [
            hmac.compare_digest(expected, code)
            for secret in secrets
            for expected in self._expected(claimed, secret)
            for code in claimed.codes
        ]
        return True in answers

    def _expected(self, claimed: Claimed, secret: Secret) -> list[bytes]:
        key = self.key(secret.reveal())
        return [self.code(hmac.digest(key, text, self.hash_name)) for text in claimed.texts]


def spend_as_if_verified(body: bytes) -> None:
    """Take the time that a verification takes, so that the answer's delay tells nothing."""
    hmac.compare_digest(hmac.digest(_NOBODYS_KEY, body, "sha256"), bytes(32))


def check_timestamp(text: str, *, now_s: float, tolerance_s: int) -> None:
    """Refuse a signed time too far from now, in seconds or milliseconds."""
    if not _DIGITS.fullmatch(text):
        raise Refused(Reason.TIMESTAMP_MALFORMED)
    at = int(text)
    at_s = at / 1000 if at >= _MILLISECONDS_FROM else at
    if abs(now_s - at_s) > tolerance_s:
        raise Refused(Reason.TIMESTAMP_OUTSIDE)
