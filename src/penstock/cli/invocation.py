"""What one run of the command line knows: global options, settings, database, output.

Commands take it with `@click.pass_obj`. Settings are read when first asked for, so that `--help`
and `explain` work with broken ones.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import click

from penstock.cli.output import Output
from penstock.kernel.database import Database, PooledConnection
from penstock.kernel.outgoing_secrets import SETTING, is_for_receivers
from penstock.kernel.settings import Settings, load_settings

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., object])


@dataclass
class Invocation:
    """The global options, and what follows from them."""

    app: str | None = None
    config: Path | None = None
    as_json: bool = False
    quiet: bool = False
    verbose: int = 0
    overrides: dict[str, object] = field(default_factory=dict)

    @property
    def out(self) -> Output:
        """Where this command prints to."""
        return Output(as_json=self.as_json, quiet=self.quiet)

    @cached_property
    def settings(self) -> Settings:
        """The settings of this run; raises BadSetting."""
        return load_settings(os.environ, self.config, self.overrides)

    def database(self, *, size: int = 2) -> Database:
        """The named database, not yet opened; raises NoDatabase."""
        return Database(
            self.settings.require_database(),
            size=size,
            pooler=self.settings.uses_pooler(),
            application_name="penstock-cli",
            statement_timeout_s=self.settings.statement_timeout_s,
        )

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[PooledConnection]:
        """A connection to the named database, closed when the block ends."""
        database = self.database()
        await database.open()
        try:
            async with database.connection() as conn:
                yield conn
        finally:
            await database.close()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[PooledConnection]:
        """A connection inside a transaction that commits when the block ends well."""
        database = self.database()
        await database.open()
        try:
            async with database.transaction() as conn:
                yield conn
        finally:
            await database.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a command's coroutine to its end."""
        return asyncio.run(work)


def reason_option(function: F) -> F:
    """Add --reason, which goes into the audit log."""
    return click.option("--reason", required=True, help="Why; goes into the audit log.")(function)


def yes_option(function: F) -> F:
    """Add --yes, for where nobody can be asked."""
    return click.option("--yes", is_flag=True, help="Do not ask; needed without a terminal.")(
        function
    )


def warn_of_secrets(invocation: Invocation, references: Sequence[str]) -> None:
    """Say which of these a worker set up like this process would not give to a receiver."""
    for reference in references:
        if not is_for_receivers(reference, invocation.settings.destination_secrets):
            invocation.out.say(f"  note: {reference} has to be in {SETTING} of the workers")
