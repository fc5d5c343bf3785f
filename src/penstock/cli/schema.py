"""`penstock migrate`, `penstock schema print|verify|diff` and `penstock grant`."""

import difflib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import click

from penstock.cli.invocation import Invocation, reason_option, yes_option
from penstock.cli.output import Output
from penstock.kernel.errors import SchemaMissing, WrongUsage
from penstock.kernel.schema import ENGINE, LEDGER, MigrationReport, select_products
from penstock.kernel.schema import migrate as migrate_database
from penstock.kernel.schema.grants import grant as grant_role
from penstock.kernel.schema.grants import plan_grant
from penstock.kernel.schema.script import print_install, print_upgrade
from penstock.kernel.schema.verify import Finding
from penstock.kernel.schema.verify import verify as verify_database
from penstock.kernel.sqlfiles import Product, optional_script

_only_option = click.option(
    "--only", metavar="PRODUCT", help="This product and the kernel; nothing of the others."
)


@dataclass(frozen=True, slots=True)
class _Place:
    """One database of the installation and the products that belong into it."""

    name: str
    url: str
    products: tuple[Product, ...]


def _places(invocation: Invocation, only: str | None) -> Iterator[_Place]:
    """The engine's database, and the ledger's where one is named."""
    settings = invocation.settings
    ledger = select_products(LEDGER)
    has_ledger = any(product.name == "ledger" for product in ledger)
    if only == "ledger":
        url = settings.require_ledger() if settings.ledger_url else settings.require_database()
        yield _Place("ledger", url, select_products(only=only))
        return
    yield _Place("engine", settings.require_database(), select_products(ENGINE, only))
    if only is None and has_ledger and settings.ledger_url is not None:
        yield _Place("ledger", settings.ledger_url.reveal(), ledger)


@click.command()
@_only_option
@click.option("--dry-run", is_flag=True, help="Say what would be done; change nothing.")
@click.option("--no-roles", is_flag=True, help="Create no roles; the login owns all objects.")
@click.pass_obj
def migrate(invocation: Invocation, *, only: str | None, dry_run: bool, no_roles: bool) -> None:
    """Install the schema, or upgrade it to this release.

    Run it before the new release starts. It may be run again, run at once from several places, or
    be killed: each step is done wholly or not at all.
    """
    out = invocation.out
    reports: dict[str, MigrationReport] = {}
    for place in _places(invocation, only):
        report = invocation.run(
            migrate_database(
                place.url,
                dry_run=dry_run,
                roles=not no_roles,
                products=place.products,
                progress=_progress(out, place.name),
            )
        )
        reports[place.name] = report
        _tell(out, place.name, report)
    if out.as_json:
        out.data({"databases": reports})


def _progress(out: Output, place: str) -> Callable[[str], None]:
    return lambda text: out.say(f"  {place}   {text} …")


def _tell(out: Output, place: str, report: MigrationReport) -> None:
    if out.as_json:
        return
    for role in report.roles_created:
        out.say(f"  {place}   {'would create' if report.dry_run else 'created'} role {role}")
    for product in report.products:
        version = f"{product.from_version or 'nothing'} → {product.to_version}"
        out.say(f"  {place}   {product.product:<8} {product.action:<8} {version}")
        if report.dry_run:
            for step in product.steps:
                out.say(f"  {'':<{len(place)}}     {step}")
    verb = "would change" if report.dry_run else "changed"
    state = f"{verb} the schema" if report.changed else "is up to date"
    click.echo(f"{place}: {state} ({report.elapsed_ms} ms)")


@click.group()
def schema() -> None:
    """Print, verify or compare the schema."""


@schema.command(name="print")
@_only_option
@click.option("--from", "from_version", type=int, help="Only what comes after this version.")
@click.option("--no-roles", is_flag=True, help="Leave out our roles and the grants to them.")
@click.option("--cron", is_flag=True, help="Only the outbox's optional jobs for pg_cron, pg_net.")
def print_schema(*, only: str | None, from_version: int | None, no_roles: bool, cron: bool) -> None:
    """Print the SQL as one script for psql or another migration tool; needs no database."""
    if cron:
        click.echo(optional_script("penstock.outbox", "cron"), nl=False)
        return
    if only == "ledger":
        database = select_products(LEDGER)
    else:
        database = select_products(ENGINE, only if from_version is None else None)
    if from_version is None:
        click.echo(print_install(database, roles=not no_roles), nl=False)
        return
    chosen = [product for product in database if only in {None, product.name}]
    if not chosen:
        raise WrongUsage(f"there is no product '{only}'")
    script = print_upgrade(chosen, from_version, installed=database, roles=not no_roles)
    click.echo(script, nl=False)


def _findings(invocation: Invocation) -> list[Finding]:
    found: list[Finding] = []
    for place in _places(invocation, None):
        try:
            found += invocation.run(verify_database(place.url))
        except SchemaMissing as error:
            error.todo = "run `penstock migrate`."
            raise
    return found


@schema.command()
@click.pass_obj
def verify(invocation: Invocation) -> int:
    """Compare the live schema with its record and with this release; exit status 1 on drift."""
    found = _findings(invocation)
    rows = [{"state": f.state, "object": f.object, "product": f.product} for f in found]
    if invocation.as_json or found:
        invocation.out.table(["state", "object", "product"], rows)
    if found:
        invocation.out.say("`penstock schema diff` shows both sides; `penstock migrate` restores")
        invocation.out.say("functions, triggers, views and policies, and reports the rest.")
    else:
        invocation.out.say("the schema is what was installed")
    return 1 if found else 0


@schema.command()
@click.pass_obj
def diff(invocation: Invocation) -> int:
    """The same as verify, with both definitions of everything that differs."""
    found = _findings(invocation)
    if invocation.as_json:
        invocation.out.data(found)
    for finding in () if invocation.as_json else found:
        click.echo(f"{finding.state} {finding.object}")
        for line in _lines(finding):
            click.echo(f"  {line}")
    return 1 if found else 0


def _lines(finding: Finding) -> Iterator[str]:
    compared = difflib.unified_diff(
        finding.expected.splitlines(), finding.found.splitlines(), "installed", "found", lineterm=""
    )
    # The first two lines are the names of the sides, the third a position.
    yield from (line for line in list(compared)[2:] if not line.startswith("@@"))


@click.command()
@click.argument("role")
@click.argument("to", type=click.Choice(["to"]))
@click.argument("login")
@reason_option
@yes_option
@click.pass_obj
def grant(
    invocation: Invocation, *, role: str, to: str, login: str, reason: str, yes: bool
) -> None:
    """Put LOGIN into one of our groups: penstock grant ROLE to LOGIN."""
    del to
    out = invocation.out
    url = invocation.settings.require_database()
    plan = invocation.run(plan_grant(url, role, login))
    if plan.already:
        out.done(f"{login} is a member of {role} already", audit_id=None, changed=False)
        return
    out.plan([f"grant {role} to {login}: it may then do all that {role} may"])
    out.confirm(f"Grant {role} to {login}?", yes=yes)
    audit_id = invocation.run(grant_role(url, plan, reason=reason))
    out.done(f"granted {role} to {login}", audit_id=audit_id, changed=True)
