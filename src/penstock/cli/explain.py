"""`penstock explain CODE`: what an error code means and what to do, without any connection."""

import difflib

import click

from penstock.cli.invocation import Invocation
from penstock.kernel.catalogue import CATALOGUE, Entry
from penstock.kernel.errors import WrongUsage


@click.command()
@click.argument("code", required=False)
@click.pass_obj
def explain(invocation: Invocation, code: str | None) -> None:
    """Explain an error code, such as PN204; without one, list them all."""
    out = invocation.out
    if code is None:
        rows = ({"code": entry.code, "title": entry.title} for entry in CATALOGUE.values())
        out.table(["code", "title"], rows)
        return
    entry = _find(code)
    if out.as_json:
        out.data(entry)
        return
    click.echo(f"{entry.code} {entry.title}")
    out.record(
        {
            "what happened": entry.happened,
            "what to do": entry.todo,
            "retryable": entry.retryable,
            "HTTP status": entry.http_status,
            "exit code": entry.exit_code,
        }
    )


def _find(code: str) -> Entry:
    wanted = code.strip().upper()
    entry = CATALOGUE.get(wanted) or CATALOGUE.get(f"PN{wanted}")
    if entry is None:
        near = difflib.get_close_matches(wanted, CATALOGUE, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise WrongUsage(
            f"there is no code {code}{hint}", todo="`penstock explain` lists all codes."
        )
    return entry
