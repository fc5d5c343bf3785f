"""`penstock stats`: depth and trouble of every queue, what is paused, who is working."""

import click

from penstock.cli.destination import state_of
from penstock.cli.invocation import Invocation
from penstock.cli.output import Column, Output, age
from penstock.kernel import operations
from penstock.kernel.operations import Pause, QueueStats, WorkerSeen
from penstock.outbox import destinations
from penstock.outbox.destinations import DestinationStats

LIVE_S = 60.0


@click.command()
@click.pass_obj
def stats(invocation: Invocation) -> None:
    """Show queues, pauses, destinations that get nothing, and workers."""
    queues, pauses, workers, found = invocation.run(_read(invocation))
    out = invocation.out
    if out.as_json:
        named = {"queues": queues, "pauses": pauses, "workers": workers, "destinations": found}
        out.data(named)
        return
    _print_queues(out, queues, pauses)
    _print_pauses(out, pauses)
    _print_destinations(out, found)
    _print_workers(out, workers)


async def _read(
    invocation: Invocation,
) -> tuple[list[QueueStats], list[Pause], list[WorkerSeen], list[DestinationStats]]:
    async with invocation.connection() as conn:
        return (
            await operations.queue_stats(conn),
            await operations.pauses(conn),
            await operations.workers(conn),
            await destinations.stats(conn) if await destinations.installed(conn) else [],
        )


def _print_queues(out: Output, queues: list[QueueStats], pauses: list[Pause]) -> None:
    paused = {pause.target for pause in pauses}
    numbers = ("ready", "scheduled", "leased", "expired", "dead", "held")
    rows = [
        {
            "queue": queue.queue + (" (paused)" if queue.queue in paused else ""),
            **{name: getattr(queue, name) for name in numbers},
            "oldest": age(queue.oldest_age_s),
        }
        for queue in queues
    ]
    columns = [Column(name, right=True) for name in (*numbers, "oldest")]
    out.table([Column("queue"), *columns], rows, empty="no queue is installed")


def _print_pauses(out: Output, pauses: list[Pause]) -> None:
    for pause in pauses:
        until = (
            f"until {pause.until_at:%Y-%m-%d %H:%M:%S %Z}" if pause.until_at else "until resumed"
        )
        out.say(f"paused: {pause.target} by {pause.paused_by}, {until}: {pause.reason}")


def _print_destinations(out: Output, found: list[DestinationStats]) -> None:
    for one in found:
        state = state_of(one)
        if state not in ("ok", "paused"):
            why = one.fault or one.last_error or ""
            waiting = one.ready + one.waiting
            out.say(f"destination {one.name}: {state} {why}".rstrip() + f", {waiting:,} waiting")


def _print_workers(out: Output, workers: list[WorkerSeen]) -> None:
    live = [worker for worker in workers if worker.silent_s < LIVE_S]
    silent = len(workers) - len(live)
    out.say(f"workers: {len(live)} live" + (f", {silent} silent" if silent else ""))
    for worker in live:
        out.say(f"  {worker.host} pid {worker.pid}  {', '.join(worker.queues)}  {worker.version}")
