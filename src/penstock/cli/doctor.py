"""`penstock doctor`: finds what is wrong and names the safe command."""

import click

from penstock.cli.invocation import Invocation
from penstock.cli.output import Output
from penstock.kernel.checks import CHECKS, Diagnosis, Examination, examine
from penstock.kernel.database import call
from penstock.kernel.queue import Connection
from penstock.kernel.schema import available_products
from penstock.kernel.sqlfiles import Product
from penstock.outbox import checks as outbox
from penstock.payments import checks as payments

_SIGNS = {"error": "✗", "warning": "!"}
_WIDTH_MAX = 100


@click.command()
@click.pass_obj
def doctor(invocation: Invocation) -> int:
    """Check database, schema, connections and queues; exit code 1 if anything is found."""
    diagnosis = invocation.run(_look(invocation))
    out = invocation.out
    if out.as_json:
        out.data(diagnosis)
    else:
        _print(out, diagnosis)
    return 1 if diagnosis.findings else 0


async def _look(invocation: Invocation) -> Diagnosis:
    async with invocation.connection() as conn:
        exam = Examination(
            conn,
            invocation.settings,
            await _installed(conn),
            unclaimed=(outbox.unclaimed, payments.unclaimed),
        )
        return await examine(exam, (*CHECKS, *outbox.CHECKS, *payments.CHECKS))


async def _installed(conn: Connection) -> list[Product]:
    """The products of this database; an adopter of one need not have the others."""
    rows = await call(conn, "select to_regclass('penstock.migration') is not null as there")
    products = available_products()
    if not rows[0]["there"]:
        return [product for product in products if product.name == "kernel"]
    known = await call(conn, "select distinct product from penstock.migration")
    names = {row["product"] for row in known}
    return [product for product in products if product.name in names]


def _print(out: Output, diagnosis: Diagnosis) -> None:
    findings = sorted(diagnosis.findings, key=lambda one: one.severity)
    width = min(_WIDTH_MAX, max((len(finding.finding) for finding in findings), default=0))
    for finding in findings:
        click.echo(f" {_SIGNS[finding.severity]} {finding.finding:<{width}}   → {finding.remedy}")
    for skipped in diagnosis.skipped:
        out.say(f" ? {skipped.check} not looked at: {skipped.reason}   → {skipped.remedy}")
    more = " more" if findings else ""
    out.say(f" ✓ {len(diagnosis.passed)}{more} checks")
