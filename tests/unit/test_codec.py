"""Payloads: what can be carried, and what is refused before it reaches the database."""

from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest

from penstock import BadPayload
from penstock.kernel.codec import PAYLOAD_BYTES_MAX, decoder, encode


@dataclass
class Plain:
    number: int
    amount: Decimal
    at: datetime
    ref: UUID


class Fixed(msgspec.Struct):
    number: int
    amount: Decimal
    at: datetime
    ref: UUID


class Typed(TypedDict):
    number: int
    amount: Decimal
    at: datetime
    ref: UUID


class Checked(pydantic.BaseModel):
    number: int
    amount: Decimal
    at: datetime
    ref: UUID


VALUES: dict[str, Any] = {
    "number": 7,
    "amount": Decimal("9.90"),
    "at": datetime(2026, 3, 1, 12, tzinfo=UTC),
    "ref": UUID(int=5),
}


@pytest.mark.parametrize("model", [Plain, Fixed, Typed, Checked])
def test_a_model_comes_back_as_it_went(model: Any) -> None:
    value = model(**VALUES)
    assert decoder(model)(encode(value).encode()) == value


@pytest.mark.parametrize("model", [Plain, Fixed, Typed, Checked])
def test_what_does_not_fit_is_named_without_its_value(model: Any) -> None:
    with pytest.raises(BadPayload) as caught:
        decoder(model)(b'{"number": "sk_live_secret", "amount": "1"}')
    assert "sk_live_secret" not in str(caught.value)
    assert "number" in str(caught.value)


@pytest.mark.parametrize("raw", [b"", b"{", b"\xff\xfe", b"[1]"])
def test_what_is_not_the_model_is_a_bad_payload(raw: bytes) -> None:
    with pytest.raises(BadPayload):
        decoder(Plain)(raw)


@pytest.mark.parametrize(
    "value",
    [
        {"a": "nul \x00 inside"},
        {"\x00": 1},
        {"a": "\\\x00"},
        {"a": "\ud800"},
        {"a": object()},
        {"a": "x" * PAYLOAD_BYTES_MAX},
    ],
    ids=["nul", "nul key", "backslash and nul", "surrogate", "object", "too large"],
)
def test_what_postgres_cannot_hold_is_refused(value: Any) -> None:
    with pytest.raises(BadPayload):
        encode(value)


@pytest.mark.parametrize("text", ["\\u0000", "\\\\u0000", "u0000", "é\U0001f600"])
def test_text_that_only_looks_like_a_nul_is_fine(text: str) -> None:
    assert decoder(dict[str, str])(encode({"a": text}).encode()) == {"a": text}


class Fieldless:
    def __init__(self, number: int) -> None:
        self.number = number


@pytest.mark.parametrize("model", [Fieldless, Plain | Fixed])
def test_a_type_that_is_no_model_is_refused_when_declared(model: Any) -> None:
    with pytest.raises(BadPayload, match="cannot be a payload"):
        decoder(model)
