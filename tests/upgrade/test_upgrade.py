"""From release to release: upgrade = fresh, at any point of a kill; and which code runs on what."""

import asyncio
from dataclasses import replace

import asyncpg
import pytest
from tests.support.database import empty_database
from tests.support.schema import dump, gadget, kernel, records, releases

from penstock.kernel import failpoints
from penstock.kernel.errors import SchemaMissing, SchemaTooNew
from penstock.kernel.schema import check_schema, migrate
from penstock.kernel.schema import session as schema_session
from penstock.kernel.schema.session import Session
from penstock.kernel.schema.verify import verify
from penstock.postgres import Cluster


@pytest.mark.parametrize(("before", "after"), [("first", "second"), ("first", "third")])
async def test_an_upgraded_database_equals_a_fresh_one(
    cluster: Cluster, before: str, after: str
) -> None:
    with empty_database(cluster) as upgraded, empty_database(cluster) as fresh:
        await migrate(upgraded, products=releases(before))
        report = await migrate(upgraded, products=releases(after))
        await migrate(fresh, products=releases(after))
        assert [p.action for p in report.products] == ["nothing", "upgrade"]
        assert dump(cluster, upgraded) == dump(cluster, fresh)
        assert await records(upgraded) == await records(fresh)
        assert await verify(upgraded, products=releases(after)) == ()


async def test_an_upgrade_keeps_the_rows(empty_url: str) -> None:
    await migrate(empty_url, products=releases("first"))
    conn: Session = await asyncpg.connect(empty_url)
    try:
        await conn.execute("insert into gadget.part (name) values ('bolt')")
        await migrate(empty_url, products=releases("third"))
        row = await conn.fetchrow("select name, weight from gadget.part")
        assert tuple(row or ()) == ("bolt", 0)
    finally:
        await conn.close()


@pytest.mark.parametrize("passage", range(1, 6))
async def test_an_upgrade_broken_anywhere_is_completed_by_the_next(
    cluster: Cluster, passage: int
) -> None:
    with empty_database(cluster) as broken, empty_database(cluster) as fresh:
        await migrate(broken, products=releases("first"))
        failpoints.arm(f"mid_migration=raise@{passage}")
        try:
            with pytest.raises(RuntimeError, match="failpoint"):
                await migrate(broken, products=releases("third"))
        finally:
            failpoints.arm("")
        await migrate(broken, products=releases("third"))
        await migrate(fresh, products=releases("third"))
        assert dump(cluster, broken) == dump(cluster, fresh)
        assert await records(broken) == await records(fresh)


async def test_two_upgrades_at_once_both_end_well(empty_url: str) -> None:
    await migrate(empty_url, products=releases("first"))
    await asyncio.gather(*(migrate(empty_url, products=releases("third")) for _ in range(3)))
    assert await verify(empty_url, products=releases("third")) == ()
    versions, _ = await records(empty_url)
    assert [row[1] for row in versions if row[0] == "gadget"] == [1, 2, 3, 4]


async def test_an_invalid_index_of_a_broken_build_is_replaced(empty_url: str) -> None:
    await migrate(empty_url, products=releases("first"))
    conn: Session = await asyncpg.connect(empty_url)
    try:
        await conn.execute("insert into gadget.part (name) values ('same'), ('same')")
        with pytest.raises(asyncpg.UniqueViolationError):
            await conn.execute("create unique index concurrently part_name on gadget.part (name)")
        invalid = (
            "select not indisvalid from pg_index where indexrelid = 'gadget.part_name'::regclass"
        )
        assert await conn.fetchval(invalid)
        await migrate(empty_url, products=releases("second"))
        assert not await conn.fetchval(invalid)
        assert await verify(empty_url, products=releases("second")) == ()
    finally:
        await conn.close()


async def test_an_index_build_does_not_wait_for_the_lock_holder(empty_url: str) -> None:
    await migrate(empty_url, products=releases("first"))
    await asyncio.wait_for(migrate(empty_url, products=releases("second")), 20)


async def test_an_upgrade_gives_way_to_traffic_and_comes_back(
    empty_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock that does not come soon is given up, so that readers do not queue behind it."""
    monkeypatch.setattr(schema_session, "PATIENCE", "set local lock_timeout = '50ms'")
    await migrate(empty_url, products=releases("first"))
    reader: Session = await asyncpg.connect(empty_url)
    told: list[str] = []
    gave_way = asyncio.Event()

    def progress(text: str) -> None:
        told.append(text)
        if text.startswith("waiting for a lock"):
            gave_way.set()

    try:
        transaction = reader.transaction()
        await transaction.start()
        await reader.execute("select count(*) from gadget.part")
        running = asyncio.create_task(
            migrate(empty_url, products=releases("third"), progress=progress)
        )
        await asyncio.wait_for(gave_way.wait(), 10)
        await transaction.rollback()
        await asyncio.wait_for(running, 20)
    finally:
        await reader.close()
    assert await verify(empty_url, products=releases("third")) == ()


async def test_code_runs_on_its_own_schema_and_the_next(empty_url: str) -> None:
    second = gadget("second")
    one_older = replace(second, migrations=second.migrations[:1])
    await migrate(empty_url, products=releases("second"))
    conn: Session = await asyncpg.connect(empty_url)
    try:
        await check_schema(conn, [kernel(), second])
        await check_schema(conn, [one_older])
        with pytest.raises(SchemaTooNew):
            await check_schema(conn, [gadget("first")])
        with pytest.raises(SchemaMissing, match="needs 4") as caught:
            await check_schema(conn, [gadget("third")])
        assert "penstock migrate --only gadget" in caught.value.todo
    finally:
        await conn.close()


async def test_code_without_any_schema_names_the_command(empty_url: str) -> None:
    conn: Session = await asyncpg.connect(empty_url)
    try:
        with pytest.raises(SchemaMissing) as caught:
            await check_schema(conn, [kernel()])
        assert "penstock migrate" in caught.value.todo
    finally:
        await conn.close()


async def test_the_handshake_needs_no_more_than_one_of_our_roles(conn: Session) -> None:
    for role in ("penstock_outbox_ingest", "penstock_readonly", "penstock_ledger_writer"):
        await conn.execute(f"set role {role}")
        await check_schema(conn, [kernel()])


async def test_an_older_release_does_not_migrate_a_newer_schema(empty_url: str) -> None:
    await migrate(empty_url, products=releases("third"))
    before = await records(empty_url)
    with pytest.raises(SchemaTooNew):
        await migrate(empty_url, products=releases("second"))
    assert await records(empty_url) == before
