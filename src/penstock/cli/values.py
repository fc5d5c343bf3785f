"""What people type as an argument: durations, times, ids; and who is typing."""

import getpass
import json
import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import click

from penstock.kernel.errors import WrongUsage

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([smhdw])", re.ASCII)


def parse_duration(text: str) -> timedelta:
    """Read `30m`, `2h`, `1h30m`, `7d`; raises ValueError."""
    compact = text.strip().lower()
    if not compact or _PART.sub("", compact).strip():
        raise ValueError(f"{text!r} is no duration; write 45s, 30m, 2h, 1h30m or 7d")
    seconds = sum(float(amount) * _UNITS[unit] for amount, unit in _PART.findall(compact))
    return timedelta(seconds=seconds)


def format_duration(seconds: float) -> str:
    """Write seconds the way `parse_duration` reads them."""
    if seconds <= 0 or seconds != int(seconds):
        return f"{seconds:g}s"
    rest, parts = int(seconds), []
    for unit in ("d", "h", "m", "s"):
        amount, rest = divmod(rest, _UNITS[unit])
        if amount:
            parts.append(f"{amount}{unit}")
    return "".join(parts)


class Duration(click.ParamType[timedelta]):
    """A duration such as 30m."""

    name = "duration"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta:
        """Read it, or fail with what is wanted."""
        if isinstance(value, timedelta):
            return value
        try:
            return parse_duration(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Moment(click.ParamType[datetime]):
    """A time: ISO 8601 (UTC unless it says otherwise), or a duration meaning that long ago."""

    name = "time"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime:
        """Read it, or fail with what is wanted."""
        if isinstance(value, datetime):
            return value
        text = str(value)
        try:
            return datetime.now(UTC) - parse_duration(text)
        except ValueError:
            pass
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            self.fail(
                f"{text!r} is no time; write 2026-05-01T12:00Z, or 2h for 2 h ago", param, ctx
            )
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


DURATION = Duration()
MOMENT = Moment()


def parse_id(text: str) -> UUID:
    """Read an item's id."""
    try:
        return UUID(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is no id") from None


def parse_pairs(pairs: Iterable[str]) -> dict[str, Any]:
    """Read `NAME=JSON` settings; what is no JSON is text."""
    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise WrongUsage(f"{pair!r} is not NAME=VALUE")
        try:
            found[name] = json.loads(text)
        except ValueError:
            found[name] = text
    return found


def operator_name() -> str:
    """The account that runs this command, for the audit log beside the database login."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "unknown"
