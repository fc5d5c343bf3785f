"""Payloads: from JSON into the model a handler asks for, and back.

dataclasses, msgspec Structs, TypedDicts and plain containers go through msgspec; models of pydantic
are known by their methods, so that pydantic is never imported here.
"""

import re
from collections.abc import Callable
from typing import Any

import msgspec
import msgspec.inspect

from penstock.kernel.errors import BadPayload

Decode = Callable[[bytes], Any]

PAYLOAD_BYTES_MAX = 1024 * 1024
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")


def decoder(model: Any) -> Decode:
    """What turns JSON into the model; raises BadPayload when called with what does not fit."""
    validate = getattr(model, "model_validate_json", None)
    if validate is not None:
        return _guarded(validate, (ValueError,))  # pydantic's ValidationError is one
    try:
        decode = msgspec.json.Decoder(model).decode
        custom = isinstance(msgspec.inspect.type_info(model), msgspec.inspect.CustomType)
    except TypeError as error:
        raise _no_model(model, str(error)) from error
    if custom:  # msgspec takes any class here and then refuses every payload
        raise _no_model(model, "a class without declared fields")
    return _guarded(decode, (msgspec.MsgspecError, ValueError))


def _no_model(model: object, reason: str) -> BadPayload:
    return BadPayload(
        f"{_name(model)} cannot be a payload: {reason}",
        happened="payloads are dataclasses, Structs, TypedDicts, pydantic models or dicts.",
    )


def _guarded(decode: Decode, errors: tuple[type[Exception], ...]) -> Decode:
    def run(raw: bytes) -> Any:
        try:
            return decode(raw)
        except errors as error:
            raise BadPayload(f"{type(error).__name__}: {_place(error)}") from error

    return run


def _place(error: Exception) -> str:
    """Where the payload did not fit, without any value of it."""
    listed = getattr(error, "errors", None)
    if callable(listed):
        places = (".".join(map(str, found["loc"])) + " " + found["type"] for found in listed())
        return "; ".join(places)[:500]
    # msgspec says "Expected `int`, got `str` - at `$.amount`": types and a path, no values, except
    # for enums and unknown keys, whose text is cut off.
    return re.sub(r"'[^']*'", "'…'", str(error))[:500]


def encode(value: object) -> str:
    """The JSON text of a payload; raises BadPayload for what Postgres or JSON cannot hold."""
    dump = getattr(value, "model_dump_json", None)
    try:
        raw = dump().encode() if dump is not None else msgspec.json.encode(value)
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        # ValueError includes UnicodeEncodeError, raised for lone surrogates; its text quotes them.
        text = "a lone surrogate" if isinstance(error, UnicodeError) else str(error)
        raise BadPayload(f"{_name(type(value))} cannot be written as JSON: {text}") from error
    if len(raw) > PAYLOAD_BYTES_MAX:
        raise BadPayload(f"{len(raw)} bytes, and at most {PAYLOAD_BYTES_MAX} are allowed")
    if b"\\u0000" in raw and _NUL.search(raw):
        raise BadPayload("a string holds a NUL, which Postgres cannot store")
    return raw.decode()


def _name(model: object) -> str:
    return getattr(model, "__qualname__", None) or str(model)
