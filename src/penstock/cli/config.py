"""`penstock config`: every setting, its value with secrets masked, and where it came from."""

import click

from penstock.cli.invocation import Invocation
from penstock.cli.output import Column
from penstock.kernel.secrets import Secret
from penstock.kernel.settings import TABLE


@click.command()
@click.option("--changed", is_flag=True, help="Only what differs from the default.")
@click.pass_obj
def config(invocation: Invocation, changed: bool) -> None:
    """Show every setting and where it came from; secrets are masked."""
    settings = invocation.settings
    rows = []
    for name, row in TABLE.items():
        source = settings.source_of(name)
        if changed and source == "default":
            continue
        rows.append(
            {
                "setting": name,
                "value": masked(getattr(settings, name)),
                "source": source,
                "group": row.spec.group,
                "env": row.env_names[0],
                "doc": row.spec.doc,
            }
        )
    columns: list[str | Column] = ["setting", Column("value", exact=True), Column("source", "from")]
    invocation.out.table(columns, rows, empty="all defaults")


def masked(value: object) -> object:
    """The value as it may be shown."""
    if isinstance(value, Secret):
        return value.masked()
    if isinstance(value, tuple):
        return [masked(part) for part in value]
    return value
