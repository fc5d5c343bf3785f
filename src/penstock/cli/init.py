"""`penstock init`: a settings file, an example application and its test, to start from."""

from pathlib import Path

import click

from penstock.cli.invocation import Invocation
from penstock.kernel.errors import Refused

_SETTINGS = """\
# Settings of this process. `penstock config` shows every value and where it came from.
# A variable PENSTOCK_<NAME> goes before this file, the command line before both.
# Secrets may be references: "env:NAME" or "file:/run/secrets/name".

# database_url = "env:DATABASE_URL"
concurrency = 16
log_format = "console"
"""

_APP = '''\
"""An application: one topic and one handler. Run it with `penstock dev --app app:ps`."""

from dataclasses import dataclass

from penstock import Event, Penstock

ps = Penstock.from_env()


@dataclass
class OrderPaid:
    """What is told when an order has been paid."""

    order_id: int
    customer: str


order_paid = ps.outbox.topic("orders.paid", OrderPaid)


@order_paid.on()
async def thank(event: Event[OrderPaid]) -> None:
    """Runs at least once for every event; event.id is the same each time."""
    print(f"thank you, {event.data.customer}, for order {event.data.order_id}")
'''

_TEST = '''\
"""Run with pytest; `perform` needs no database."""

import asyncio

from app import OrderPaid, thank

from penstock import Done
from penstock.testing import perform


def test_thanks_the_customer(capsys):
    assert asyncio.run(perform(thank, OrderPaid(42, "Ada"))) == Done()
    assert "Ada" in capsys.readouterr().out
'''

FILES = {"penstock.toml": _SETTINGS, "app.py": _APP, "test_app.py": _TEST}


@click.command()
@click.argument(
    "directory", type=click.Path(path_type=Path, file_okay=False), default=Path(), required=False
)
@click.pass_obj
def init(invocation: Invocation, directory: Path) -> None:
    """Write penstock.toml, app.py and test_app.py into DIRECTORY; never overwrites."""
    taken = [name for name in FILES if (directory / name).exists()]
    if taken:
        raise Refused(
            f"{', '.join(taken)} already there",
            happened="init never overwrites a file; nothing was written.",
            todo="use an empty directory: `penstock init NAME`.",
        )
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in FILES.items():
        # "x": if somebody else wrote it in between, theirs stays.
        with (directory / name).open("x", encoding="utf-8") as file:
            file.write(text)
    out = invocation.out
    if out.as_json:
        out.data({"written": [str(directory / name) for name in FILES]})
        return
    out.say("\n".join(f"wrote {directory / name}" for name in FILES))
    where = "" if directory == Path() else f"cd {directory} && "
    out.say(f"next: {where}penstock dev --app app:ps")
