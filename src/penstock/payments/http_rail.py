"""A rail over HTTP, by configuration: where to, which fields, and what each code means.

The key goes into `Idempotency-Key`, the same for every attempt. Needs the extra `http`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import quote
from uuid import UUID

import msgspec

from penstock.kernel.http_errors import AddressRefused, DownstreamFailed
from penstock.kernel.outgoing import Outgoing
from penstock.kernel.replies import Reply, retry_after
from penstock.kernel.secrets import Secret
from penstock.kernel.verdict import Reject, Unknown
from penstock.payments.instruction import Destination, Instruction
from penstock.payments.model import RailClass
from penstock.payments.rails import CodeTable, NotSent, RailOutcome, Sent, StatusOutcome

KEY_HEADER = "idempotency-key"
# The code of a 2xx answer that is not of the form that the configuration describes.
UNREADABLE = "REPLY_UNREADABLE"
# What HTTP itself settles. 5xx, 409 and redirects settle nothing: the payment may have been made.
STATUS_CODES: Mapping[str, RailClass] = {
    "HTTP_200": "OK",
    "HTTP_201": "OK",
    "HTTP_202": "OK",
    "HTTP_400": "REJECT",
    "HTTP_402": "REJECT",
    "HTTP_403": "REJECT",
    "HTTP_404": "REJECT",
    "HTTP_422": "REJECT",
    "HTTP_401": "RETRY",
    "HTTP_425": "RETRY",
    "HTTP_429": "RETRY",
}

Body = Callable[[Instruction], Mapping[str, object]]


def plain_body(instruction: Instruction) -> Mapping[str, object]:
    """Amount in minor units, currency, destination, and the details as they are."""
    return {
        **instruction.details,
        "amount": instruction.minor_units,
        "currency": instruction.currency,
        "destination": instruction.destination,
        "instruction_id": instruction.instruction_id,
    }


@dataclass(frozen=True, slots=True)
class HttpRailConfig:
    """One rail's interface. Paths such as `("error", "code")` say where in an answer a value is.

    `codes` adds the rail's own codes to those of HTTP (`HTTP_429`); a code that neither names is
    Unknown. A 2xx answer with a code of the rail's means what the code means; a number or a truth
    value is the code of its JSON text. A 2xx answer that is no JSON object has the code
    `REPLY_UNREADABLE`, unless it is empty.
    """

    url: str
    codes: Mapping[str, RailClass] = field(default_factory=dict)
    authorization: Secret | None = None
    code_at: Sequence[str] = ("code",)
    reference_at: Sequence[str] = ("id",)
    body: Body = plain_body
    destination_keys: Sequence[str] = ()


class HttpRail:
    """Posts instructions as JSON and reads what came of them by an explicit table."""

    def __init__(self, config: HttpRailConfig, outgoing: Outgoing) -> None:
        self._config = config
        self._outgoing = outgoing
        self._codes = CodeTable({**STATUS_CODES, **config.codes})

    async def dispatch(self, instruction: Instruction, key: UUID) -> RailOutcome:
        """Ask once for the payment; raises NotSent when nothing can have arrived."""
        body = msgspec.json.encode(dict(self._config.body(instruction)))
        headers = {"content-type": "application/json", KEY_HEADER: str(key), **self._headers()}
        try:
            reply = await self._outgoing.post(
                self._config.url, body, message_id=str(key), headers=headers
            )
        except AddressRefused:
            raise NotSent("ADDRESS_REFUSED") from None
        except DownstreamFailed as error:
            if not error.sent:
                raise NotSent(error.kind) from None
            return Unknown("no answer came", error.kind)
        return self._read(reply)

    def check_destination(self, destination: Destination) -> str | None:
        """The keys that the configuration asks for, each with a text."""
        needed = self._config.destination_keys
        if not needed:
            return None
        if isinstance(destination, str) or any(not destination.get(key) for key in needed):
            return f"the destination needs {', '.join(needed)}"
        return None

    def _headers(self) -> dict[str, str]:
        secret = self._config.authorization
        return {} if secret is None else {"authorization": secret.reveal()}

    def _read(self, reply: Reply) -> RailOutcome:
        if reply.truncated:
            return Unknown("the answer was too long to read", "REPLY_TOO_LONG")
        document = _document(reply.body)
        try:
            code = _code_at(document, self._config.code_at)
        except _Unreadable:
            # A page in between may answer 200 for everybody: that says nothing about the payment.
            code = UNREADABLE if 200 <= reply.status < 300 else None
        return self._codes.outcome(
            reply.code if code is None else code,
            reference=_text_at(document, self._config.reference_at),
            after=retry_after(reply),
        )


class AskableHttpRail(HttpRail):
    """The same for a rail that can be asked by key; `status_url` has `{key}` where the key goes."""

    def __init__(self, config: HttpRailConfig, outgoing: Outgoing, *, status_url: str) -> None:
        super().__init__(config, outgoing)
        self._status_url = status_url

    async def status_query(self, instruction: Instruction, key: UUID) -> StatusOutcome:
        """Ask what became of a payment; only a clear yes or a code of refusal settles it."""
        del instruction
        url = self._status_url.replace("{key}", quote(str(key)))
        try:
            reply = await self._outgoing.get(url, self._headers())
        except (AddressRefused, DownstreamFailed):
            return Unknown(code="NO_ANSWER")
        if reply.status != 200:
            return Unknown(code=reply.code)  # not found may mean not yet
        outcome = self._read(reply)
        return outcome if isinstance(outcome, Sent | Reject) else Unknown(code=outcome.code)


class _Unreadable(Exception):
    """An answer is not of the form in which a code could stand."""


def _document(body: bytes) -> object:
    """What the body says; nothing for an empty one, and itself where it is no JSON."""
    if not body.strip():
        return None
    try:
        return msgspec.json.decode(body)
    except (msgspec.MsgspecError, RecursionError):
        return body


def _code_at(document: object, path: Sequence[str]) -> str | None:
    """The code at a path of an answer, None where there is none; raises _Unreadable.

    Many rails have numbers for codes: 51 is the code "51", and never the same as none.
    """
    found = document
    for key in path:
        if found is None:
            return None
        if not isinstance(found, dict):
            raise _Unreadable
        found = found.get(key)
    if isinstance(found, str):
        return found[:200] or None
    if isinstance(found, bool):
        return str(found).lower()
    if found is None or isinstance(found, int):
        return None if found is None else str(found)
    raise _Unreadable


def _text_at(document: object, path: Sequence[str]) -> str | None:
    """The text at a path of an answer; None where there is none."""
    found = document
    for key in path:
        if not isinstance(found, dict):
            return None
        found = found.get(key)
    return found[:200] if isinstance(found, str) and found else None
