"""`penstock bench NAME`: measure on embedded servers, never on a configured database."""

from collections.abc import Callable, Coroutine
from importlib import import_module
from typing import Any

import click

from penstock.bench.report import BenchReport
from penstock.cli.invocation import Invocation
from penstock.cli.output import Column, Output
from penstock.kernel.errors import NotFound
from penstock.kernel.loops import run_fast

BENCHES = {
    "inbox": "penstock.bench.inbox:bench_inbox",
    "intake": "penstock.bench.intake:bench_intake",
    "kernel": "penstock.bench.kernel:bench_kernel",
    "outbox": "penstock.bench.outbox:bench_outbox",
    "payments": "penstock.bench.payments:bench_payments",
}


@click.command()
@click.argument("name", metavar="NAME")
@click.option("--quick", is_flag=True, help="A few seconds: shows that it works, not the rates.")
@click.pass_obj
def bench(invocation: Invocation, name: str, quick: bool) -> int:
    """Measure NAME (kernel, …): figures with their baseline in the same run, and goals."""
    if name not in BENCHES:
        raise NotFound(f"no benchmark named {name!r}; there are: {', '.join(BENCHES)}")
    module_name, _, function = BENCHES[name].partition(":")
    module = import_module(module_name)
    run: Callable[..., Coroutine[Any, Any, BenchReport]] = getattr(module, function)
    plan = module.Plan.quick() if quick else module.Plan()
    out = invocation.out
    report = run_fast(run(plan, out.say))  # as the workers it measures do
    if out.as_json:
        out.data(report.as_json())
    else:
        _print(out, report)
    # A quick run proves nothing about goals, so it does not fail on them either.
    return 0 if report.met or quick else 1


def _print(out: Output, report: BenchReport) -> None:
    out.record(report.machine)
    out.table(
        (Column("name", "figure"), Column("value", right=True)),
        [{"name": name, "value": f"{value:,.4g}"} for name, value in report.figures.items()],
    )
    out.table(
        (Column("met"), Column("goal"), Column("value", right=True)),
        [
            {"met": "yes" if goal.met else "NO", "goal": goal.name, "value": f"{goal.value:,.4g}"}
            for goal in report.goals
        ],
    )
    if report.notes:
        out.table(
            (Column("name", "not measured"), Column("reason")),
            [{"name": name, "reason": reason} for name, reason in report.notes.items()],
        )
