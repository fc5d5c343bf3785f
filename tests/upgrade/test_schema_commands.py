"""The commands: exit codes, plans, JSON, and a ledger database of its own."""

import asyncio
import json

import asyncpg
import psycopg
import pytest
from tests.support.database import empty_database
from tests.support.schema import Ran, penstock, records

from penstock.kernel.schema.products import ENGINE, LEDGER, available_products
from penstock.kernel.schema.session import Session
from penstock.postgres import Cluster


async def _penstock(*arguments: str, url: str = "", ledger: str = "") -> Ran:
    environ = {"PENSTOCK_LEDGER_URL": ledger} if ledger else {}
    return await asyncio.to_thread(penstock, *arguments, url=url, environ=environ)


async def test_migrate_without_a_database_is_wrong_usage() -> None:
    ran = await _penstock("migrate")
    assert ran.code == 2
    assert "PN002" in ran.err


async def test_migrate_of_an_unreachable_database_is_told_apart() -> None:
    ran = await _penstock("migrate", url="postgresql://nobody@127.0.0.1:1/none")
    assert ran.code == 3
    assert "PN003" in ran.err


async def test_migrate_brings_each_product_to_its_own_database(cluster: Cluster) -> None:
    assert {"ledger", "intake"} <= {product.name for product in available_products()}
    with empty_database(cluster) as engine, empty_database(cluster) as ledger:
        ran = await _penstock("migrate", "--json", url=engine, ledger=ledger)
        assert ran.code == 0, ran.err
        told = json.loads(ran.out)["databases"]
        assert {name: [p["product"] for p in told[name]["products"]] for name in told} == {
            "engine": list(ENGINE),
            "ledger": list(LEDGER),
        }
        versions, _ = await records(ledger)
        assert {row[0] for row in versions} == set(LEDGER)
        verified = await _penstock("schema", "verify", url=engine, ledger=ledger)
        assert verified.code == 0, verified.out


async def test_a_dry_run_prints_the_plan(empty_url: str) -> None:
    ran = await _penstock("migrate", "--dry-run", "--only", "outbox", url=empty_url)
    assert ran.code == 0
    assert "create tables" in ran.out
    assert "would change the schema" in ran.out
    conn: Session = await asyncpg.connect(empty_url)
    try:
        assert await conn.fetchval("select to_regnamespace('penstock')") is None
    finally:
        await conn.close()


async def test_verify_and_diff_end_with_1_on_drift(conn: Session, database_url: str) -> None:
    await conn.execute(
        "create or replace function penstock.clock() returns timestamptz "
        "language sql as 'select now()'"
    )
    verified = await _penstock("schema", "verify", "--json", url=database_url)
    assert verified.code == 1
    assert json.loads(verified.out) == [
        {"state": "changed", "object": "function penstock.clock()", "product": "kernel"}
    ]
    diff = await _penstock("schema", "diff", url=database_url)
    assert diff.code == 1
    assert "-AS $function$ select clock_timestamp() $function$" in diff.out
    assert "+AS $function$select now()$function$" in diff.out


async def test_verify_of_an_empty_database_is_a_version_mismatch(empty_url: str) -> None:
    ran = await _penstock("schema", "verify", url=empty_url)
    assert ran.code == 4
    assert "penstock migrate" in ran.err


async def test_print_needs_no_database() -> None:
    ran = await _penstock("schema", "print", "--only", "outbox")
    assert ran.code == 0
    assert "create table public.outbox" in ran.out
    assert "intake_pools" not in ran.out
    upgrade = await _penstock("schema", "print", "--only", "outbox", "--from", "1")
    assert upgrade.code == 0
    assert "create table public.outbox" not in upgrade.out
    unknown = await _penstock("schema", "print", "--only", "nonsense")
    assert unknown.code == 2


@pytest.mark.parametrize("login", ["plain", 'odd "name"; drop table x'])
async def test_grant_asks_acts_and_leaves_an_audit_row(
    cluster: Cluster, conn: Session, database_url: str, login: str
) -> None:
    name = f"{login} {database_url.rpartition('/')[2]}"
    with psycopg.connect(cluster.url(), autocommit=True) as admin:
        admin.execute(psycopg.sql.SQL("create role {} login").format(psycopg.sql.Identifier(name)))
    try:
        words = ("grant", "penstock_outbox_ingest", "to", name, "--reason", "new service")
        refused = await _penstock(*words, url=database_url)
        assert refused.code == 5
        member = "select pg_has_role($1::name, 'penstock_outbox_ingest', 'member')"
        assert not await conn.fetchval(member, name)
        granted = await _penstock(*words, "--yes", "--json", url=database_url)
        assert granted.code == 0, granted.err
        assert await conn.fetchval(member, name)
        row = await conn.fetchrow(
            "select operation, reason, row_data ->> 'login' as login from audit.audit_logs "
            "where id = $1::text::uuid",
            json.loads(granted.out)["audit_id"],
        )
        assert tuple(row or ()) == ("grant", "new service", name)
        again = await _penstock(*words, "--yes", "--json", url=database_url)
        assert json.loads(again.out)["changed"] is False
    finally:
        with psycopg.connect(cluster.url(), autocommit=True) as admin:
            admin.execute(psycopg.sql.SQL("drop role {}").format(psycopg.sql.Identifier(name)))


@pytest.mark.parametrize(
    ("role", "login", "code"),
    [("postgres", "postgres", 2), ("penstock_owner", "postgres", 2), ("penstock_operator", "x", 1)],
)
async def test_grant_refuses_foreign_roles_and_unknown_logins(
    database_url: str, role: str, login: str, code: int
) -> None:
    ran = await _penstock("grant", role, "to", login, "--reason", "r", "--yes", url=database_url)
    assert ran.code == code


async def test_grant_takes_only_the_word_to(database_url: str) -> None:
    words = ("grant", "penstock_operator", "from", "postgres", "--reason", "r", "--yes")
    ran = await _penstock(*words, url=database_url)
    assert ran.code == 2
