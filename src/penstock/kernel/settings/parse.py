"""Turns what was written (text of a variable, value of a TOML file) into a setting's value.

A parser raises ValueError with what it wanted; the loader adds which setting and where it stood.
"""

import ipaddress
import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias
from urllib.parse import urlsplit

from penstock.kernel.secrets import Dsn, Secret

Parser: TypeAlias = Callable[[object], object]

_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})
_HOST = re.compile(r"(?!-)[a-z0-9_-]+(\.[a-z0-9_-]+)*\.?", re.IGNORECASE)
_FUNCTION = re.compile(r"[a-z_][a-z0-9_]*(\.[a-z_][a-z0-9_]*)?")


def text(raw: object) -> str:
    """Any text."""
    if not isinstance(raw, str):
        raise ValueError("wants text")
    return raw.strip()


def integer(low: int, high: int) -> Parser:
    """A whole number within bounds."""

    def parse(raw: object) -> int:
        value = _whole(raw)
        if not low <= value <= high:
            raise ValueError(f"wants a whole number from {low} to {high}")
        return value

    return parse


def _whole(raw: object) -> int:
    if isinstance(raw, int) and not isinstance(raw, bool):
        return raw
    # int() alone would also take "1_000" and digits of other scripts.
    if isinstance(raw, str) and re.fullmatch(r"[+-]?[0-9]{1,18}", raw.strip(), re.ASCII):
        return int(raw)
    raise ValueError("wants a whole number")


def number(low: float, high: float) -> Parser:
    """A number within bounds."""

    def parse(raw: object) -> float:
        if isinstance(raw, bool) or not isinstance(raw, int | float | str):
            raise ValueError("wants a number")
        try:
            value = float(raw)
        except ValueError:
            raise ValueError("wants a number") from None
        if not low <= value <= high:
            raise ValueError(f"wants a number from {low:g} to {high:g}")
        return value

    return parse


def flag(raw: object) -> bool:
    """Yes or no."""
    word = str(raw).strip().lower()
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise ValueError("wants true or false")


def choice(*words: str) -> Parser:
    """One of a few words."""

    def parse(raw: object) -> str:
        word = str(raw).strip().lower()
        if word not in words:
            raise ValueError(f"wants one of {', '.join(words)}")
        return word

    return parse


def words(raw: object) -> tuple[str, ...]:
    """A list of texts: a TOML array, or one text with commas."""
    if isinstance(raw, str):
        raw = raw.split(",")
    if not isinstance(raw, list | tuple) or not all(isinstance(part, str) for part in raw):
        raise ValueError("wants a list of texts, or one text with commas")
    return tuple(dict.fromkeys(part.strip() for part in raw if part.strip()))


def chosen_words(*known: str) -> Parser:
    """A list taken from a closed set, without regard to case."""
    by_fold = {word.casefold(): word for word in known}

    def parse(raw: object) -> tuple[str, ...]:
        given = words(raw)
        unknown = [word for word in given if word.casefold() not in by_fold]
        if unknown:
            raise ValueError(f"does not know {', '.join(unknown)}; wants of {', '.join(known)}")
        return tuple(by_fold[word.casefold()] for word in given)

    return parse


def hosts(raw: object) -> tuple[str, ...]:
    """Host names and networks, such as `hooks.internal` or `10.20.0.0/16`."""
    given = words(raw)
    for part in given:
        if not _is_network(part) and not _HOST.fullmatch(part):
            raise ValueError(f"{part!r} is neither a host name nor a network")
    return given


def _is_network(part: str) -> bool:
    try:
        ipaddress.ip_network(part)
    except ValueError:
        return False
    return True


def names(raw: object) -> tuple[str, ...]:
    """References to secrets, `env:NAME` or `file:PATH`, in which `*` stands for anything."""
    given = words(raw)
    for part in given:
        if not part.startswith(("env:", "file:")):
            raise ValueError(f"{part!r} is neither env:NAME nor file:PATH")
    return given


def functions(raw: object) -> tuple[str, ...]:
    """Names of SQL functions, `name` or `schema.name`."""
    given = words(raw)
    for part in given:
        if not _FUNCTION.fullmatch(part):
            raise ValueError(f"{part!r} is no plain function name")
    return given


def path(raw: object) -> Path:
    """A file or directory."""
    return Path(text(raw)).expanduser()


def web_url(raw: object) -> str:
    """An http or https address."""
    address = text(raw)
    parts = urlsplit(address)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError("wants an http:// or https:// address")
    if parts.username or parts.password:
        raise ValueError("wants an address without user and password")
    return address.rstrip("/")


def postgres_url(raw: object) -> Dsn:
    """A postgres:// address."""
    address = text(raw)
    try:
        parts = urlsplit(address)
        _ = parts.port  # asks for a well-formed port
    except ValueError:
        raise ValueError("wants postgres://user@host:port/database") from None
    if parts.scheme not in {"postgres", "postgresql"}:
        raise ValueError("wants postgres://user@host:port/database")
    return Dsn(address)


def secret(raw: object) -> Secret:
    """A secret text."""
    return Secret(text(raw))


def secrets(most: int) -> Parser:
    """Up to `most` secrets that are valid at the same time, so that one can be replaced."""

    def parse(raw: object) -> tuple[Secret, ...]:
        given = words(raw)
        if len(given) > most:
            raise ValueError(f"wants at most {most} secrets")
        return tuple(Secret(part) for part in given)

    return parse
