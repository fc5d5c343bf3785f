"""`penstock pause` and `penstock resume`."""

from datetime import timedelta
from uuid import UUID

import click

from penstock.cli.invocation import Invocation, reason_option, yes_option
from penstock.cli.values import DURATION, format_duration, operator_name
from penstock.kernel import operations


@click.command()
@click.argument("target")
@reason_option
@click.option(
    "--for", "lasting", type=DURATION, help="For how long, such as 30m; else until resumed."
)
@yes_option
@click.pass_obj
def pause(
    invocation: Invocation, *, target: str, reason: str, lasting: timedelta | None, yes: bool
) -> None:
    """Stop claims on TARGET: a queue, or a part such as topic/X, pool/X, destination/X.

    What is running is not interrupted. Nothing is lost: items wait.
    """
    out = invocation.out
    until = f"for {format_duration(lasting.total_seconds())}" if lasting else "until resumed"
    out.plan([f"pause {target} {until}; running items end normally, new ones wait"])
    out.confirm(f"Pause {target}?", yes=yes)

    async def act() -> UUID:
        async with invocation.transaction() as conn:
            return await operations.pause(
                conn, target, reason=reason, lasting=lasting, operator=operator_name()
            )

    out.done(f"paused {target} {until}", audit_id=invocation.run(act()), target=target)


@click.command()
@click.argument("target")
@click.option("--reason", default="resumed", show_default=True, help="Goes into the audit log.")
@yes_option
@click.pass_obj
def resume(invocation: Invocation, *, target: str, reason: str, yes: bool) -> None:
    """Lift the pause of TARGET."""
    out = invocation.out
    out.plan([f"resume {target}: waiting items are claimed again at once"])
    out.confirm(f"Resume {target}?", yes=yes)

    async def act() -> UUID:
        async with invocation.transaction() as conn:
            return await operations.resume(conn, target, reason=reason, operator=operator_name())

    out.done(f"resumed {target}", audit_id=invocation.run(act()), target=target)
