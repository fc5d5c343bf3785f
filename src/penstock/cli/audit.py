"""`penstock audit`: who did what, when and why."""

import json
from datetime import datetime

import click

from penstock.cli.invocation import Invocation
from penstock.cli.output import plain
from penstock.cli.values import MOMENT
from penstock.kernel import operations
from penstock.kernel.operations import AuditRow

PAGE = 500


@click.group()
def audit() -> None:
    """Show the audit log, which can only grow."""


@audit.command("list")
@click.option("--operation", help="Only this kind, such as replay.")
@click.option("--since", type=MOMENT, help="Only from this time on; 2h means 2 h ago.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True)
@click.pass_obj
def list_rows(
    invocation: Invocation, *, operation: str | None, since: datetime | None, limit: int
) -> None:
    """List actions, newest first."""

    async def read() -> list[AuditRow]:
        async with invocation.connection() as conn:
            return await operations.audit_rows(conn, operation=operation, since=since, limit=limit)

    rows = invocation.run(read())
    columns = ["at", "operation", "table_name", "actor", "operator", "reason", "id"]
    invocation.out.table(columns, plain(rows), empty="no action is recorded")


@audit.command()
@click.option("--since", type=MOMENT, help="Only from this time on; 30d means 30 days ago.")
@click.pass_obj
def export(invocation: Invocation, since: datetime | None) -> None:
    """Print every action as one JSON object per line, newest first."""

    async def write() -> None:
        async with invocation.connection() as conn:
            before = None
            while rows := await operations.audit_rows(conn, since=since, before=before, limit=PAGE):
                for row in rows:
                    click.echo(json.dumps(plain(row), ensure_ascii=False))
                before = rows[-1].id

    invocation.run(write())
