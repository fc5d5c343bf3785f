"""Runs a migration that cannot stand in a transaction, such as `create index concurrently`.

It may be killed anywhere and run again: what is there and valid is kept, an invalid leftover of a
broken index build is dropped first.
"""

from collections.abc import Awaitable, Callable

import asyncpg

from penstock.kernel.errors import MigrationFailed
from penstock.kernel.failpoints import failpoint
from penstock.kernel.schema.apply import quote_name
from penstock.kernel.schema.session import Session, locked, session
from penstock.kernel.sqlfiles import Migration, Product
from penstock.kernel.sqltext import Statement

Recorder = Callable[[Product, Migration], Awaitable[None]]

_INDEX = """
select i.indisvalid
from pg_catalog.pg_class t
join pg_catalog.pg_namespace n on n.oid = t.relnamespace
join pg_catalog.pg_class c on c.relnamespace = n.oid and c.relname = $2
join pg_catalog.pg_index i on i.indexrelid = c.oid
where n.nspname = $1
limit 1
"""
_APPLIED = "select exists (select from penstock.migration where product = $1 and version = $2)"


async def run_outside(
    url: str, product: Product, migration: Migration, *, record: Recorder
) -> None:
    """Run each statement by itself, then record the version.

    A second connection holds the lock in an idle transaction. It must ask nothing else: a query
    with parameters would leave a snapshot open, and an index build waits for every snapshot.
    Statements run as the login, which inherits the owner's rights.
    """
    async with session(url) as guard:
        async with locked(guard):
            await _run_statements(url, product, migration)
        # The record takes the lock itself; between the two another run finds all done already.
        await record(product, migration)


async def _run_statements(url: str, product: Product, migration: Migration) -> None:
    async with session(url) as conn:
        if await conn.fetchval(_APPLIED, product.name, migration.version):
            return
        for statement in migration.file.statements:
            failpoint("mid_migration")
            try:
                if not await _already_built(conn, statement):
                    await conn.execute(statement.text)
            except asyncpg.PostgresError as error:
                label = f"{product.name}/{migration.file.path}"
                raise MigrationFailed(f"{label}: {error.message}") from error


async def _already_built(conn: Session, statement: Statement) -> bool:
    """Whether the index that a statement builds is there and valid; an invalid one is dropped."""
    creation = statement.creates
    if creation is None or creation.kind != "index":
        return False
    schema = _schema_of_index(statement)
    valid = await conn.fetchval(_INDEX, schema, creation.name)
    if valid is False:
        name = f"{quote_name(schema)}.{quote_name(creation.name)}"
        await conn.execute(f"drop index concurrently if exists {name}")
    return valid is True


def _schema_of_index(statement: Statement) -> str:
    """An index lives where its table does: `… on [only] schema.table …`."""
    words = statement.words
    position = words.index("on") + 1
    position += words[position] == "only"
    return words[position]
