"""Rules that every object of ours keeps, asked of the live catalog."""

from collections.abc import AsyncIterator, Iterator

import asyncpg
import pytest
from tests.support.database import empty_database, run_apart

from penstock.kernel.schema import ENGINE, LEDGER, migrate, select_products
from penstock.kernel.schema.session import Session
from penstock.postgres import Cluster

HOMES = {"engine": ENGINE, "ledger": LEDGER}

# pgmq is third-party: its SQL is applied as it comes, in a schema of its own.
OURS = "n.nspname <> 'pgmq' and n.nspname not like 'pg\\_%' and n.nspname <> 'information_schema'"


@pytest.fixture(scope="module", params=list(HOMES))
def installed(request: pytest.FixtureRequest, cluster: Cluster) -> Iterator[str]:
    """A database with all products of one home."""
    with empty_database(cluster) as url:
        run_apart(lambda: migrate(url, products=select_products(HOMES[request.param])))
        yield url


@pytest.fixture
async def live(installed: str) -> AsyncIterator[Session]:
    """A connection to it."""
    connection: Session = await asyncpg.connect(installed)
    yield connection
    await connection.close()


async def _names(conn: Session, query: str) -> list[str]:
    return [row[0] for row in await conn.fetch(query.replace("{ours}", OURS))]


async def test_there_is_something_to_check(live: Session) -> None:
    counted = await _names(
        live,
        "select p.proname::text from pg_proc p join pg_namespace n on n.oid = p.pronamespace "
        "where {ours} and p.prosecdef",
    )
    assert len(counted) > 5


async def test_definer_functions_fix_their_search_path(live: Session) -> None:
    assert not await _names(
        live,
        "select p.oid::regprocedure::text from pg_proc p "
        "join pg_namespace n on n.oid = p.pronamespace "
        "where {ours} and p.prosecdef and not exists (select from unnest(p.proconfig) c "
        "where c ~ '^search_path=pg_catalog(, .*)?, pg_temp$')",
    )


async def test_functions_that_pin_their_plan_switch_compilation_off(live: Session) -> None:
    """Before 18 a plan step that is switched off counts as dear, and what is dear is compiled."""
    assert not await _names(
        live,
        "select p.oid::regprocedure::text from pg_proc p "
        "join pg_namespace n on n.oid = p.pronamespace "
        "where {ours} and exists (select from unnest(p.proconfig) c where c ~ '^enable_.*=off$') "
        "and not 'jit=off' = any (p.proconfig)",
    )


async def test_definer_functions_belong_to_a_role_that_cannot_log_in(live: Session) -> None:
    assert not await _names(
        live,
        "select p.oid::regprocedure::text from pg_proc p "
        "join pg_namespace n on n.oid = p.pronamespace join pg_roles r on r.oid = p.proowner "
        "where {ours} and p.prosecdef and (r.rolcanlogin or r.rolsuper)",
    )


async def test_definer_functions_are_closed_to_the_public(live: Session) -> None:
    assert not await _names(
        live,
        "select p.oid::regprocedure::text from pg_proc p "
        "join pg_namespace n on n.oid = p.pronamespace "
        "where {ours} and p.prosecdef and has_function_privilege('public', p.oid, 'execute')",
    )


async def test_pgmq_is_closed_to_the_public(live: Session) -> None:
    assert not await _names(
        live,
        "select p.oid::regprocedure::text from pg_proc p "
        "join pg_namespace n on n.oid = p.pronamespace "
        "where n.nspname = 'pgmq' and has_function_privilege('public', p.oid, 'execute')",
    )


async def test_every_object_belongs_to_our_owner(live: Session) -> None:
    assert not await _names(
        live,
        "select c.oid::regclass::text from pg_class c "
        "join pg_namespace n on n.oid = c.relnamespace "
        "where {ours} and pg_get_userbyid(c.relowner) <> 'penstock_owner' "
        "union all select p.oid::regprocedure::text from pg_proc p "
        "join pg_namespace n on n.oid = p.pronamespace "
        "where {ours} and pg_get_userbyid(p.proowner) <> 'penstock_owner'",
    )


async def test_every_function_is_explained(live: Session) -> None:
    assert not await _names(
        live,
        "select p.oid::regprocedure::text from pg_proc p "
        "join pg_namespace n on n.oid = p.pronamespace "
        "where {ours} and obj_description(p.oid, 'pg_proc') is null",
    )


async def test_every_table_and_view_is_explained(live: Session) -> None:
    assert not await _names(
        live,
        "select c.oid::regclass::text from pg_class c "
        "join pg_namespace n on n.oid = c.relnamespace "
        "where {ours} and c.relkind in ('r', 'p', 'v', 'm') and not c.relispartition "
        "and obj_description(c.oid, 'pg_class') is null",
    )


async def test_no_table_is_lost_in_a_crash(live: Session) -> None:
    assert not await _names(
        live,
        "select c.oid::regclass::text from pg_class c "
        "join pg_namespace n on n.oid = c.relnamespace "
        "where {ours} and c.relpersistence <> 'p'",
    )


async def test_every_foreign_key_has_an_index(live: Session) -> None:
    assert not await _names(
        live,
        "select k.conrelid::regclass || '.' || k.conname from pg_constraint k "
        "join pg_namespace n on n.oid = k.connamespace "
        "where {ours} and k.contype = 'f' and not exists (select from pg_index i "
        "where i.indrelid = k.conrelid and i.indpred is null and "
        "(i.indkey::int2[])[0:cardinality(k.conkey) - 1] @> k.conkey)",
    )


async def test_every_table_has_row_security(live: Session) -> None:
    assert not await _names(
        live,
        "select c.oid::regclass::text from pg_class c "
        "join pg_namespace n on n.oid = c.relnamespace "
        "where {ours} and c.relkind in ('r', 'p') and not c.relispartition "
        "and not c.relrowsecurity",
    )


async def test_nobody_may_create_in_our_schemas(live: Session) -> None:
    assert not await _names(
        live,
        "select n.nspname || ' ' || r.rolname from pg_namespace n, pg_roles r "
        "where {ours} and n.nspname <> 'public' and r.rolname like 'penstock\\_%' "
        "and r.rolname <> 'penstock_owner' and has_schema_privilege(r.oid, n.oid, 'create')",
    )


async def test_a_temporary_table_cannot_stand_in_for_ours(conn: Session) -> None:
    """The classic attack on a definer function: a temporary table of the same name goes first."""
    transaction = conn.transaction()
    await transaction.start()
    try:
        await conn.execute("create temp table audit_logs (like audit.audit_logs)")
        await conn.execute("create temp table pause (like penstock.pause)")
        await conn.execute("set local search_path = pg_temp, penstock, audit, public")
        await conn.execute("set local role penstock_operator")
        written = await conn.fetchval("select penstock.pause_target('outbox', 'because')")
        await conn.execute("reset role")
        assert await conn.fetchval("select count(*) from pg_temp.audit_logs") == 0
        assert await conn.fetchval("select count(*) from pg_temp.pause") == 0
        stored = "select exists (select from audit.audit_logs where id = $1)"
        assert await conn.fetchval(stored, written)
    finally:
        await transaction.rollback()
