"""`penstock payments` and `penstock held`: look at payments, withdraw them, end what is unclear."""

from typing import Any, get_args
from uuid import UUID

import click

from penstock.cli.invocation import Invocation, reason_option, yes_option
from penstock.cli.output import plain
from penstock.cli.show import print_story
from penstock.cli.values import operator_name, parse_id
from penstock.kernel import operations
from penstock.kernel.operations import DeadFilter, DeadLetter
from penstock.payments import store
from penstock.payments.model import BrokenLink, Resolution

MEANINGS = {
    "dispatched": "it was paid, and is never sent again",
    "not_paid": "it was not paid, and is sent (again)",
    "failed": "it was not paid, and is not to be",
}


@click.group()
def payments() -> None:
    """Look at payments, verify their record, withdraw, hold or approve them."""


@payments.command("show")
@click.argument("payment_id", metavar="ID")
@click.pass_obj
def show_payment(invocation: Invocation, payment_id: str) -> None:
    """Show one payment: state, every dispatch and outcome, late results, who acted; no payload."""
    print_story(invocation.out, invocation.run(_story(invocation, parse_id(payment_id))))


async def _story(invocation: Invocation, payment: UUID) -> dict[str, Any]:
    async with invocation.connection() as conn:
        return await operations.story(conn, payment, payload_reason=None, operator=operator_name())


@payments.command()
@click.option("--participant", metavar="ID", help="Only this participant's chain.")
@click.pass_obj
def verify(invocation: Invocation, participant: str | None) -> int:
    """Check the chain of hashes over all attempts; names the first broken link, then exits 1."""

    async def look() -> list[BrokenLink]:
        async with invocation.connection() as conn:
            return await store.verify_chain(conn, participant)

    broken = invocation.run(look())
    out = invocation.out
    if out.as_json:
        out.data({"chain": "broken" if broken else "whole", "broken": plain(broken)})
    else:
        for link in broken:
            # The result itself, so it is printed with --quiet too.
            place = "unlinked" if link.link_no is None else f"link {link.link_no}"
            click.echo(f"✗ {link.participant_id} {place}: {link.problem} ({link.attempt_id})")
        if not broken:
            out.say("the chain is whole")
    return 1 if broken else 0


def _agreed(invocation: Invocation, payment_id: str, verb: str, *, plan: str, yes: bool) -> UUID:
    """The payment, after the plan was shown and agreed to."""
    payment = parse_id(payment_id)
    invocation.out.plan([f"payment {payment}", f"plan      {plan}"])
    invocation.out.confirm(f"{verb} payment {payment}?", yes=yes)
    return payment


@payments.command()
@click.argument("payment_id", metavar="ID")
@reason_option
@yes_option
@click.pass_obj
def cancel(invocation: Invocation, payment_id: str, *, reason: str, yes: bool) -> int:
    """Withdraw a payment that was never sent; its number in the sequence stays used."""
    payment = _agreed(
        invocation, payment_id, "Cancel", plan="withdraw it, if no rail has seen it", yes=yes
    )

    async def act() -> UUID | None:
        async with invocation.transaction() as conn:
            if not await store.cancel(conn, payment, reason=reason, operator=operator_name()):
                return None
            rows = await operations.audit_rows(conn, operation="cancel", limit=20)
            return next(row.id for row in rows if row.row_data.get("id") == str(payment))

    audit_id = invocation.run(act())
    if audit_id is None:
        invocation.out.done("not cancelled: it was sent, has ended, or is not there", audit_id=None)
        return 1
    invocation.out.done("cancelled", audit_id=audit_id)
    return 0


@payments.command()
@click.argument("payment_id", metavar="ID")
@reason_option
@yes_option
@click.pass_obj
def hold(invocation: Invocation, payment_id: str, *, reason: str, yes: bool) -> int:
    """Stop an open payment until it is resolved; its participant's later payments wait."""
    payment = _agreed(
        invocation, payment_id, "Hold", plan="hold it until `penstock held resolve`", yes=yes
    )

    async def act() -> UUID:
        async with invocation.transaction() as conn:
            return await store.hold(conn, payment, reason=reason, operator=operator_name())

    invocation.out.done("held", audit_id=invocation.run(act()))
    return 0


@payments.command()
@click.argument("payment_id", metavar="ID")
@reason_option
@yes_option
@click.pass_obj
def approve(invocation: Invocation, payment_id: str, *, reason: str, yes: bool) -> int:
    """Let another login replay, resolve or give up this payment, once and within a day."""
    payment = _agreed(
        invocation,
        payment_id,
        "Approve",
        plan="approve what another login does next with it",
        yes=yes,
    )

    async def act() -> UUID:
        async with invocation.transaction() as conn:
            return await store.approve(conn, payment, reason=reason, operator=operator_name())

    invocation.out.done("approved", audit_id=invocation.run(act()))
    return 0


@click.group()
def held() -> None:
    """Look at and resolve items whose outcome is unknown."""


@held.command("list")
@click.argument("queue", required=False)
@click.option("--limit", type=click.IntRange(1, 100_000), default=50, show_default=True)
@click.pass_obj
def list_held(invocation: Invocation, queue: str | None, limit: int) -> int:
    """List held items, oldest first. Exit code 1 if there are any."""

    async def read() -> list[DeadLetter]:
        async with invocation.connection() as conn:
            wanted = DeadFilter(queue=queue, state="HELD")
            return await operations.dead_letters(conn, wanted, limit=limit)

    letters = invocation.run(read())
    names = ["queue", "id", "topic", "error_code", "attempts", "dead_at", "error"]
    invocation.out.table(names, plain(letters), empty="nothing is held")
    return 1 if letters else 0


@held.command("show")
@click.argument("item_id", metavar="ID")
@click.pass_obj
def show_held(invocation: Invocation, item_id: str) -> None:
    """Show the story of one held item."""
    print_story(invocation.out, invocation.run(_story(invocation, parse_id(item_id))))


@held.command()
@click.argument("payment_id", metavar="ID")
@click.option(
    "--as",
    "resolution",
    required=True,
    type=click.Choice(get_args(Resolution)),
    help="What was found out.",
)
@click.option("--reference", help="The rail's own name for the payment, if it was paid.")
@reason_option
@yes_option
@click.pass_obj
def resolve(
    invocation: Invocation,
    payment_id: str,
    *,
    resolution: Resolution,
    reference: str | None,
    reason: str,
    yes: bool,
) -> int:
    """Say what became of a held (or failed) payment, once somebody has found out."""
    payment = parse_id(payment_id)
    out = invocation.out
    out.plan([f"payment {payment}", f"plan      {resolution}: {MEANINGS[resolution]}"])
    out.confirm(f"Resolve payment {payment} as {resolution}?", yes=yes)

    async def act() -> UUID:
        async with invocation.transaction() as conn:
            return await store.resolve(
                conn,
                payment,
                resolution,
                reason=reason,
                operator=operator_name(),
                reference=reference,
            )

    out.done(f"resolved as {resolution}", audit_id=invocation.run(act()), resolution=resolution)
    return 0
