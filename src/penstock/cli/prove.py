"""`penstock prove`: shows that every slot, ticket, event and payment is accounted for."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import click

from penstock.cli.invocation import Invocation
from penstock.cli.output import Output
from penstock.inbox.prove import prove as prove_inbox
from penstock.intake.prove import Equation, Prover
from penstock.kernel.database import Database, call
from penstock.kernel.errors import SchemaMissing, WrongUsage
from penstock.kernel.proof import Proof, Violation
from penstock.kernel.queue import Connection
from penstock.ledger import store as ledger_store
from penstock.outbox.prove import prove as prove_outbox
from penstock.payments.prove import prove as prove_payments

PRODUCTS = ("intake", "outbox", "payments", "inbox")
OFFENDERS_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Finding:
    """What was looked at in one product, and what came of it."""

    product: str
    proof: Proof
    equations: Sequence[Equation] = ()


@click.command()
@click.option("--only", multiple=True, metavar="PRODUCT", help="Look at this product; repeatable.")
@click.pass_obj
def prove(invocation: Invocation, *, only: tuple[str, ...]) -> int:
    """Check the invariants in both databases, also while they are at work; 1 if one is broken.

    A violation is reported only if a second look finds it again.
    """
    unknown = set(only) - set(PRODUCTS)
    if unknown:
        raise WrongUsage(
            f"there is nothing to prove in {', '.join(sorted(unknown))}",
            todo=f"name one of: {', '.join(PRODUCTS)}.",
        )
    findings = invocation.run(_look(invocation, only))
    out = invocation.out
    if out.as_json:
        out.data(_document(findings))
    else:
        for finding in findings:
            _print(out, finding)
        out.say(_sentence(findings))
    return 0 if all(finding.proof.holds for finding in findings) else 1


async def _look(invocation: Invocation, only: Sequence[str]) -> list[Finding]:
    async with invocation.connection() as engine:
        installed = await _installed(engine)
        if not installed or not installed.issuperset(only):
            missing = ", ".join(sorted(set(only) - installed)) or "no product"
            raise SchemaMissing(f"this database has no {missing} to look at")
        findings = []
        if "intake" in (only or installed):
            async with _ledger(invocation) as ledger:
                found = await Prover(engine, ledger, ledger_store).prove()
            findings.append(Finding("intake", found.proof, found.equations))
        if "outbox" in (only or installed):
            findings.append(Finding("outbox", await prove_outbox(engine)))
        if "payments" in (only or installed):
            findings.append(Finding("payments", await prove_payments(engine)))
        if "inbox" in (only or installed):
            findings.append(Finding("inbox", await prove_inbox(engine)))
        return findings


async def _installed(conn: Connection) -> set[str]:
    rows = await call(conn, "select to_regclass('penstock.migration') is not null as there")
    if not rows[0]["there"]:
        return set()
    known = await call(conn, "select distinct product from penstock.migration")
    return {row["product"] for row in known} & set(PRODUCTS)


@asynccontextmanager
async def _ledger(invocation: Invocation) -> AsyncIterator[Connection | None]:
    settings = invocation.settings
    if settings.ledger_url is None:
        yield None
        return
    database = Database(
        settings.require_ledger(),
        size=1,
        application_name="penstock-cli",
        statement_timeout_s=settings.statement_timeout_s,
    )
    await database.open()
    try:
        async with database.connection() as conn:
            yield conn
    finally:
        await database.close()


def _print(out: Output, finding: Finding) -> None:
    out.say(finding.product)
    for equation in finding.equations:
        out.say(f"  {equation.pool_id}: {equation.text}")
    for number, sentence in finding.proof.invariants.items():
        offenders = finding.proof.of(number)
        # Offenders are the result, so they are printed with --quiet too.
        say = click.echo if offenders else out.say
        say(f"  {'✗' if offenders else '✓'} {number}  {sentence}")
        for offender in offenders[:OFFENDERS_SHOWN]:
            click.echo(f"        {offender.subject}: {offender.detail}")
        if len(offenders) > OFFENDERS_SHOWN:
            click.echo(f"        and {len(offenders) - OFFENDERS_SHOWN:,} more; --json has all")
    for number, reason in finding.proof.unseen.items():
        out.say(f"  ? {number}  not looked at: {reason}")


def _sentence(findings: Sequence[Finding]) -> str:
    count = sum(len(finding.proof.violations) for finding in findings)
    if count:
        return f"{count:,} violations"
    return f"{sum(len(finding.proof.invariants) for finding in findings)} invariants hold"


def _document(findings: Sequence[Finding]) -> Mapping[str, object]:
    violations: list[Violation] = []
    for finding in findings:
        violations += finding.proof.violations
    return {
        "proof": "failed" if violations else "ok",
        "pools": [equation for finding in findings for equation in finding.equations],
        "invariants": {
            number: not finding.proof.of(number)
            for finding in findings
            for number in finding.proof.invariants
        },
        "not_looked_at": {
            number: reason
            for finding in findings
            for number, reason in finding.proof.unseen.items()
        },
        "violations": violations,
    }
