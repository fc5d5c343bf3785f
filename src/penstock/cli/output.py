"""How commands print: tables for people, one JSON document for programs, plans before changes.

With --json nothing but the document goes to standard output; plans and questions go to standard
error, so that `| jq` always works.
"""

import importlib
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, is_dataclass
from dataclasses import fields as dataclass_fields
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID

import click

from penstock.kernel.errors import PenstockError, Refused
from penstock.kernel.secrets import Secret

Row = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table: the key of the row, its heading, and how it is aligned.

    `exact` columns show numbers as they would be typed, without separators.
    """

    key: str
    heading: str = ""
    right: bool = False
    exact: bool = False

    @property
    def title(self) -> str:
        """The heading, or the key in words."""
        return self.heading or self.key.replace("_", " ")

    def cell(self, value: object) -> str:
        """A value as this column shows it."""
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return str(value) if self.exact and number else shown(value)


def plain(value: object) -> Any:
    """A value as JSON can hold it; secrets stay masked."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclass_fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    return _plain_leaf(value)


def _plain_leaf(value: object) -> object:
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode("utf-8", "replace")
    assert isinstance(value, UUID | Decimal | Path | Secret) or hasattr(value, "__str__")
    return str(value)


def shown(value: object) -> str:
    """A value as a person reads it in a table cell."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.1f}"
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S %Z").rstrip()
    if isinstance(value, tuple | list):
        return ", ".join(shown(item) for item in value) or "-"
    if isinstance(value, Mapping):
        return json.dumps(plain(value), ensure_ascii=False)
    return str(plain(value))


def age(seconds: float | None) -> str:
    """A duration as hh:mm:ss, with days in front where there are any."""
    if seconds is None:
        return "-"
    whole = max(0, int(seconds))
    days, rest = divmod(whole, 86_400)
    clock = f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{days}d {clock}" if days else clock


class Output:
    """Where a command prints to. Built once per invocation."""

    def __init__(self, *, as_json: bool = False, quiet: bool = False) -> None:
        self.as_json = as_json
        self.quiet = quiet

    def data(self, value: object) -> None:
        """Print a document, as JSON whatever the mode."""
        click.echo(json.dumps(plain(value), indent=2, ensure_ascii=False))

    def say(self, text: str = "") -> None:
        """Print a sentence for people; silent with --quiet, on standard error with --json."""
        if not self.quiet:
            click.echo(text, err=self.as_json)

    def table(
        self, columns: Sequence[str | Column], rows: Iterable[Row], *, empty: str = "nothing"
    ) -> None:
        """Print rows: a table for people, a list of objects with --json."""
        rows = [dict(row) for row in rows]
        if self.as_json:
            self.data(rows)
            return
        if not rows:
            self.say(empty)
            return
        named = [column if isinstance(column, Column) else Column(column) for column in columns]
        cells = [[column.cell(row.get(column.key)) for column in named] for row in rows]
        if not _rich_table(named, cells):
            _plain_table(named, cells)

    def record(self, values: Row) -> None:
        """Print one thing: a name and a value per line, an object with --json."""
        if self.as_json:
            self.data(values)
            return
        width = max((len(key) for key in values), default=0)
        for key, value in values.items():
            first, *more = shown(value).splitlines() or [""]
            click.echo(f"  {key.replace('_', ' '):<{width}}   {first}".rstrip())
            for line in more:
                click.echo(f"  {'':<{width}}   {line}")

    def plan(self, lines: Iterable[str]) -> None:
        """Print what is about to change. Also with --quiet: nobody confirms what is not shown."""
        for line in lines:
            click.echo(f"  {line}", err=self.as_json)

    def confirm(self, question: str, *, yes: bool) -> None:
        """Ask before a change; raise Refused when the answer is no or nobody can be asked."""
        if yes:
            return
        if not sys.stdin.isatty():
            raise Refused(question.rstrip("?") + " needs --yes where nobody can be asked")
        if not click.confirm(question, err=True):
            raise Refused("not confirmed", todo="nothing was changed.")

    def done(self, text: str, *, audit_id: UUID | None, **values: object) -> None:
        """Print the end of a change: the sentence and the id of its audit row."""
        if self.as_json:
            self.data({"done": text, "audit_id": audit_id, **values})
            return
        suffix = f"   audit {audit_id}" if audit_id else ""
        click.echo(f"{text}{suffix}")

    def error(self, error: PenstockError) -> None:
        """Print an error in the one form that all surfaces share."""
        if self.as_json:
            self.data({"error": error_document(error)})
        else:
            click.echo(error.explain(), err=True)

    @contextmanager
    def progress(self, label: str, total: int) -> Iterator["Progress"]:
        """A progress bar on standard error; silent with --quiet, --json or without a terminal."""
        hidden = self.quiet or self.as_json or not sys.stderr.isatty()
        with click.progressbar(
            length=total, label=f"  {label}", file=sys.stderr, hidden=hidden
        ) as bar:
            yield Progress(bar)


class Progress:
    """What a long action tells the progress bar."""

    def __init__(self, bar: Any) -> None:
        self._bar = bar

    def advance(self, count: int = 1) -> None:
        """Count some more as done."""
        self._bar.update(count)


def error_document(error: PenstockError) -> dict[str, object]:
    """The JSON form of an error."""
    return {
        "code": error.code,
        "title": error.entry.title,
        "what": error.what,
        "happened": error.happened,
        "todo": error.todo,
        "retryable": error.retryable,
        "exit_code": error.entry.exit_code,
    }


def _rich_table(columns: Sequence[Column], cells: Sequence[Sequence[str]]) -> bool:
    """Print with rich on a terminal; False where it is not installed or nobody looks."""
    if not sys.stdout.isatty():
        return False
    try:
        table_module = importlib.import_module("rich.table")
        console_module = importlib.import_module("rich.console")
    except ImportError:
        return False
    table = table_module.Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column.title, justify="right" if column.right else "left")
    for row in cells:
        # Markup in data would be read as styling: brackets are ordinary text here.
        table.add_row(*(cell.replace("[", r"\[") for cell in row))
    console_module.Console().print(table)
    return True


def _plain_table(columns: Sequence[Column], cells: Sequence[Sequence[str]]) -> None:
    headings = [column.title for column in columns]
    widths = [max(len(line[place]) for line in (headings, *cells)) for place in range(len(columns))]
    for line in (headings, *cells):
        parts = (
            f"{cell:>{width}}" if column.right else f"{cell:<{width}}"
            for cell, width, column in zip(line, widths, columns, strict=True)
        )
        click.echo("  ".join(parts).rstrip())
