"""Writes docs/reference/ from the code: settings, errors, commands, events, metrics, HTTP.

`--check` writes nothing and fails if a file differs from what the code says.
"""

import argparse
import dataclasses
import json
import sys
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

import click

from penstock.api.openapi import document
from penstock.cli.commands import COMMANDS, SECTIONS, CommandEntry
from penstock.cli.main import global_options, load
from penstock.kernel import events
from penstock.kernel.catalogue import CATALOGUE
from penstock.kernel.errors import PenstockError
from penstock.kernel.metrics import CLOSED_LABELS, METRICS
from penstock.kernel.settings import PROCESS_VARIABLES, TABLE

FOLDER = Path(__file__).parent.parent / "docs" / "reference"
NOTE = "<!-- Written by tools/reference.py; change the code, then run `make fmt`. -->"
RANGES = {
    "0": "Use and settings",
    "1": "Schema",
    "2": "Leases and queues",
    "3": "Intake",
    "4": "Outbox",
    "5": "Payments",
    "6": "Inbox",
    "7": "HTTP and identity",
}


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A table of Markdown; bars in cells are escaped."""
    yield "| " + " | ".join(headings) + " |"
    yield "|" + "---|" * len(headings)
    for row in rows:
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"


def settings() -> Iterator[str]:
    """Every setting by group, with its variables and default."""
    yield "# Settings"
    yield ""
    yield (
        "One frozen object, read once: `penstock.toml` < environment < command line. `penstock "
        "config` shows every value and where it came from. In the file a section is a prefix: "
        "`[http] timeout_s = 5` sets `http_timeout_s`. Lists are TOML arrays, or one text with "
        "commas. An empty variable counts as unset. Secrets may be references: `env:NAME` or "
        "`file:/path`. What is unknown, malformed or contradictory stops the start."
    )
    for group, rows in groupby(TABLE.values(), key=lambda row: row.spec.group):
        yield ""
        yield f"## {group}"
        yield ""
        yield from table(
            ["setting", "variables", "default", "meaning"],
            [
                [
                    f"`{row.name}`" + (" (secret)" if row.spec.secret else ""),
                    ", ".join(f"`{name}`" for name in row.env_names),
                    default_text(row.default),
                    row.spec.doc,
                ]
                for row in rows
            ],
        )
    yield ""
    yield "## Other variables"
    yield ""
    others = [[f"`{name}`", meaning] for name, meaning in PROCESS_VARIABLES.items()]
    yield from table(["variable", "meaning"], [*others, ["`PENSTOCK_TEST_*`", "tests only"]])


def default_text(value: object) -> str:
    """A default as one writes it."""
    if value is None or value == ():
        return "unset"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple):
        return ", ".join(f"`{part}`" for part in value)
    return f"`{value}`"


def errors() -> Iterator[str]:
    """Every error code."""
    yield "# Errors"
    yield ""
    yield (
        "One form everywhere: code, what happened, what to do. SQL raises the code as SQLSTATE, "
        "HTTP answers with it in problem+json, the command line exits with its exit code. "
        "`penstock explain CODE` prints an entry without any connection."
    )
    for first, entries in groupby(CATALOGUE.values(), key=lambda entry: entry.code[2]):
        yield ""
        yield f"## {RANGES[first]}"
        for entry in entries:
            yield ""
            yield f"### {entry.code} {entry.title}"
            yield ""
            yield f"- what happened: {entry.happened}"
            yield f"- what to do: {entry.todo}"
            retry = "may succeed later unchanged" if entry.retryable else "fails again unchanged"
            yield f"- {retry}; HTTP {entry.http_status}, exit code {entry.exit_code}"


def command_line() -> Iterator[str]:
    """Every command with its options."""
    yield "# Command line"
    yield ""
    yield (
        "Exit codes, everywhere: 0 fine, 1 a finding, 2 wrong usage, 3 database not reachable, "
        "4 schema or version mismatch, 5 refused for safety. Whatever changes data prints its "
        "plan first, asks on a terminal, needs `--yes` elsewhere, and ends with its audit id."
    )
    yield ""
    yield (
        'Shell completion: `eval "$(_PENSTOCK_COMPLETE=bash_source penstock)"` in `~/.bashrc`; '
        "`zsh_source` and `fish_source` for the others."
    )
    yield ""
    yield "These options stand before or after any command:"
    yield ""
    yield from options(global_options())
    for section in SECTIONS:
        for name, entry in COMMANDS.items():
            if entry.section == section:
                yield from command(name, entry)


def command(name: str, entry: CommandEntry) -> Iterator[str]:
    """One command, or only its purpose where this build has no such part."""
    yield ""
    yield f"## penstock {name}"
    yield ""
    try:
        found = load(name)
    except PenstockError:
        yield f"{entry.help} (Not part of this build.)"
        return
    yield from described(found, f"penstock {name}")
    yield from inner_commands(found, f"penstock {name}")


def inner_commands(found: click.Command, path: str) -> Iterator[str]:
    """The commands of a group, and theirs."""
    if not isinstance(found, click.Group):
        return
    for name, inner in found.commands.items():
        yield ""
        yield f"### {path} {name}"
        yield ""
        yield from described(inner, f"{path} {name}")
        yield from inner_commands(inner, f"{path} {name}")


def described(found: click.Command, path: str) -> Iterator[str]:
    """Usage, help and options of one command."""
    context = click.Context(found, info_name=path)
    yield f"`{path} {' '.join(found.collect_usage_pieces(context))}`"
    yield ""
    paragraphs = (found.help or "").split("\n\n")
    yield "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    own = [one for one in found.params if isinstance(one, click.Option) and not one.hidden]
    if own:
        yield ""
        yield from options(own)


def options(found: Sequence[click.Option]) -> Iterator[str]:
    """A list of options."""
    context = click.Context(click.Command("penstock"))
    for option in found:
        names = ", ".join(f"`{text}`" for text in (*option.opts, *option.secondary_opts))
        value = "" if option.is_flag or option.count else f" {option.make_metavar(context)}"
        need = " (required)" if option.required else ""
        default = f" Default {option.default}." if option.show_default else ""
        yield f"- {names}{value}{need}: {option.help or option.name}{default}"


def kinds_of_events() -> list[type[events.Observation]]:
    """Every observation of the catalogue, in its order."""
    return [
        kind
        for kind in vars(events).values()
        if isinstance(kind, type)
        and issubclass(kind, events.Observation)
        and kind is not events.Observation
    ]


def observations() -> Iterator[str]:
    """Every event, and the metrics made of them."""
    yield "# Events and metrics"
    yield ""
    yield (
        "Logs, metrics and traces subscribe to these events. In a log line the name is the "
        "constant message and the fields are its data; `worker_id` is added. No event holds a "
        "payload or a secret."
    )
    yield ""
    rows = []
    for kind in kinds_of_events():
        fields = ", ".join(f"`{field.name}`" for field in dataclasses.fields(kind))
        meaning = " ".join((kind.__doc__ or "").split())
        rows.append([f"`{kind.name}`", kind.level, fields, meaning])
    yield from table(["event", "level", "fields", "meaning"], rows)
    yield ""
    yield "## Metrics"
    yield ""
    yield "Served at `/metrics`; depths are read at the scrape and at most two seconds old."
    yield ""
    yield from table(
        ["metric", "kind", "labels", "meaning"],
        [[f"`{one.name}`", one.kind, ", ".join(one.labels) or "none", one.doc] for one in METRICS],
    )
    yield ""
    for label, values in CLOSED_LABELS.items():
        yield f"- `{label}`: {', '.join(f'`{value}`' for value in sorted(values))}"


def interface() -> Iterator[str]:
    """The HTTP interface as OpenAPI, which is JSON and has no place for a note."""
    yield json.dumps(document(), indent=1)


PAGES = {
    "settings.md": settings,
    "errors.md": errors,
    "cli.md": command_line,
    "events.md": observations,
    "openapi.json": interface,
}


def render(name: str) -> str:
    """The text of one page."""
    title, *rest = PAGES[name]()
    if name.endswith(".json"):
        return f"{title}\n"
    return "\n".join([title, "", NOTE, *rest]) + "\n"


def main() -> int:
    """Write the pages, or compare them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare only")
    only_check = parser.parse_args().check
    stale = []
    for name in PAGES:
        path, text = FOLDER / name, render(name)
        if path.is_file() and path.read_text("utf-8") == text:
            continue
        stale.append(name)
        if not only_check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
    if stale and only_check:
        print(f"out of date in docs/reference: {', '.join(stale)}; run `make fmt`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
