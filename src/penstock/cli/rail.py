"""`penstock rail`: the rails that payments go over."""

import click

from penstock.cli.invocation import Invocation
from penstock.cli.values import format_duration
from penstock.payments import store
from penstock.payments.model import RailPolicy


@click.group()
def rail() -> None:
    """Look at the rails; `penstock apply` changes them."""


@rail.command("list")
@click.pass_obj
def list_rails(invocation: Invocation) -> None:
    """List the rails: how long a key is recognised, limits, what a failure does, known codes."""

    async def read() -> list[RailPolicy]:
        async with invocation.connection() as conn:
            return await store.rails(conn)

    found = invocation.run(read())
    columns = ["rail", "key_window", "timeout_s", "in_flight_max", "asks", "on_failed", "codes"]
    invocation.out.table(columns, [_row(one) for one in found], empty="there is no rail")


def _row(one: RailPolicy) -> dict[str, object]:
    window = one.idempotency_window_s
    return {
        "rail": one.rail_type,
        "key_window": None if window is None else format_duration(window),
        "timeout_s": one.timeout_s,
        "in_flight_max": one.max_concurrency,
        "asks": one.status_query,
        "on_failed": one.on_failed,
        "codes": len(one.codes),
    }
