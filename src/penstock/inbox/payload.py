"""Which bodies Postgres can hold as jsonb, decided before any write.

A signed body may still be hostile or broken: a NUL, a lone surrogate, a hundred thousand brackets,
a number that swells to a hundred kilobytes. Such a body is kept as bytes only; answering it with an
error would make the provider send it again for days.
"""

import json
import re
from collections.abc import Callable
from typing import Any

import msgspec

# Postgres writes 1e5000 out in full, so a few bytes of body would become megabytes of text.
EXPONENT_MAX = 99
DEPTH_MAX = 200
DIGITS_MAX = 1000
INTEGER_PLAIN = 10**20
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
_KEY_END = re.compile(rb'"[ \t\r\n]*:')
_SPACED_COLONS = (b" :", b"\n:", b"\t:", b"\r:")


class Unrepresentable(ValueError):
    """The body is no JSON that Postgres can hold; the text says why, without quoting it."""


def parse(body: bytes) -> Any:
    """The JSON value of a body; raises Unrepresentable for what jsonb cannot hold faithfully."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Unrepresentable(type(error).__name__) from None
    if b"\\u0000" in body and _NUL.search(body):
        raise Unrepresentable("a string holds a NUL")
    keys, has_odd_numbers = _look_over(value)
    # Either may be a false alarm, raised by the content of a string; never a missed one.
    if has_odd_numbers or _count_key_ends(body) != keys:
        _read_exactly(body)
    return value


def parse_object(body: bytes) -> dict[str, Any]:
    """The same for a body that must be an object."""
    value = parse(body)
    if not isinstance(value, dict):
        raise Unrepresentable("not an object")
    return value


def _look_over(value: object) -> tuple[int, bool]:
    """How many keys all objects have together, and whether any number is not a plain integer."""
    keys = 0
    odd = False
    level: list[object] = [[value]]
    for _ in range(DEPTH_MAX + 1):
        below: list[object] = []
        for part in level:
            if isinstance(part, dict):
                keys += len(part)
                below += part.values()
            elif isinstance(part, list):
                below += part
        level = []
        for part in below:
            kind = type(part)
            if kind is dict or kind is list:
                level.append(part)
            elif kind is float or (isinstance(part, int) and abs(part) > INTEGER_PLAIN):
                odd = True
        if not level:
            return keys, odd
    raise Unrepresentable("nested too deeply")


def _count_key_ends(body: bytes) -> int:
    """How many places look like the end of a key; quick where nobody puts spaces before colons."""
    if any(spaced in body for spaced in _SPACED_COLONS):
        return len(_KEY_END.findall(body))
    return body.count(b'":')


def _read_exactly(body: bytes) -> None:
    """The slow and exact way: looks at every number and every object as they are written."""
    try:
        json.loads(
            body,
            object_pairs_hook=_without_repeats,
            parse_float=_bounded_number,
            parse_int=_bounded_number,
        )
    except RecursionError:
        raise Unrepresentable("nested too deeply") from None


def _without_repeats(pairs: list[tuple[str, object]]) -> None:
    if len({name for name, _ in pairs}) != len(pairs):
        raise Unrepresentable("a key stands twice in one object")


def _bounded_number(text: str) -> None:
    mantissa, _, exponent = text.lower().partition("e")
    if len(mantissa) > DIGITS_MAX or len(exponent.lstrip("+-0")) > len(str(EXPONENT_MAX)):
        raise Unrepresentable("a number is too large to be written out")


Path = Callable[[object], object]


def path(dotted: str) -> Path:
    """What reads the value at `a.b.0.c` out of a document; None where there is none."""
    steps = dotted.split(".")

    def read(value: object) -> object:
        for step in steps:
            if isinstance(value, dict):
                value = value.get(step)
            elif isinstance(value, list) and step.isascii() and step.isdigit() and len(step) < 6:
                value = value[int(step)] if int(step) < len(value) else None
            else:
                return None
        return value

    return read
