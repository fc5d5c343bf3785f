"""`schema verify` sees every kind of change; `migrate` restores what holds no data."""

import asyncpg
import pytest
from tests.support.schema import gadget, kernel, releases

from penstock.kernel.errors import SchemaMissing
from penstock.kernel.schema import migrate
from penstock.kernel.schema.session import Session
from penstock.kernel.schema.verify import verify

CHANGES = [
    (
        "create or replace function penstock.is_paused(p_target text) returns boolean "
        "language sql as 'select false'",
        "function penstock.is_paused(p_target text)",
        "changed",
    ),
    ("alter function penstock.clock() owner to postgres", "function penstock.clock()", "changed"),
    (
        "grant execute on function audit.record(text, text, jsonb, text, text) to public",
        "function audit.record(p_operation text, p_table_name text, p_row_data jsonb, "
        "p_reason text, p_operator text)",
        "changed",
    ),
    ("drop index audit.audit_logs_at", "index audit.audit_logs: audit_logs_at", "missing"),
    ("create index extra on penstock.worker (host)", "index penstock.worker: extra", "added"),
    ("grant delete on audit.audit_logs to public", "table audit.audit_logs", "changed"),
    (
        "alter table audit.audit_logs disable trigger audit_logs_append_only",
        "trigger audit.audit_logs: audit_logs_append_only",
        "changed",
    ),
    (
        "drop trigger audit_logs_no_truncate on audit.audit_logs",
        "trigger audit.audit_logs: audit_logs_no_truncate",
        "missing",
    ),
    ("alter table penstock.worker alter host drop not null", "column penstock.worker.host", None),
    ("alter table penstock.worker add extra text", "column penstock.worker.extra", "added"),
    ("alter table audit.audit_logs disable row level security", "table audit.audit_logs", None),
    ("drop policy readers on penstock.queue", "policy penstock.queue: readers", "missing"),
    (
        "alter policy readers on penstock.queue using (false)",
        "policy penstock.queue: readers",
        "changed",
    ),
    (
        "alter table penstock.schedule drop constraint schedule_every_s_check",
        "constraint penstock.schedule: schedule_every_s_check",
        "missing",
    ),
    ("create table penstock.extra (x int)", "table penstock.extra", "added"),
    (
        "create or replace view penstock.dead_letters as select * from "
        "(select null::text as queue, null::uuid as id, null::text as topic, null::text as state, "
        "null::text as error_code, null::text as fingerprint, null::text as error, "
        "null::integer as attempts, null::timestamptz as created_at, "
        "null::timestamptz as dead_at) none where false",
        "view penstock.dead_letters",
        "changed",
    ),
    ("grant usage on schema penstock to public", "schema penstock", "changed"),
    (
        "alter sequence penstock.late_results_id_seq cycle",
        "sequence penstock.late_results_id_seq",
        None,
    ),
]


@pytest.mark.parametrize(("change", "name", "state"), CHANGES, ids=[c[0][:50] for c in CHANGES])
async def test_a_change_is_found(
    conn: Session, database_url: str, change: str, name: str, state: str | None
) -> None:
    assert await verify(database_url) == ()
    await conn.execute(change)
    found = {finding.object: finding.state for finding in await verify(database_url)}
    assert found[name] == (state or "changed")


async def test_an_enum_value_is_found(empty_url: str) -> None:
    await migrate(empty_url, products=releases("first"))
    conn: Session = await asyncpg.connect(empty_url)
    try:
        await conn.execute("alter type gadget.colour add value 'blue'")
    finally:
        await conn.close()
    (finding,) = await verify(empty_url, products=releases("first"))
    assert (finding.object, finding.state) == ("type gadget.colour", "changed")
    assert (finding.expected.splitlines()[0], finding.found.splitlines()[0]) == (
        "red, green",
        "red, green, blue",
    )


async def test_migrate_restores_what_holds_no_data(conn: Session, database_url: str) -> None:
    await conn.execute("drop function penstock.resume_target(text, text, text)")
    await conn.execute("alter table audit.audit_logs disable trigger audit_logs_append_only")
    await conn.execute("drop policy readers on penstock.queue")
    await conn.execute("grant execute on function penstock.heartbeat to public")
    await conn.execute("drop view penstock.dead_letters")
    report = await migrate(database_url)
    assert report.products[0].action == "repair"
    assert await verify(database_url) == ()


async def test_migrate_does_not_bless_what_it_cannot_restore(
    conn: Session, database_url: str
) -> None:
    await conn.execute("drop index audit.audit_logs_at")
    await migrate(database_url)
    assert [f.object for f in await verify(database_url)] == [
        "index audit.audit_logs: audit_logs_at"
    ]


async def test_an_upgrade_does_not_bless_older_drift(empty_url: str) -> None:
    await migrate(empty_url, products=releases("first"))
    conn: Session = await asyncpg.connect(empty_url)
    try:
        await conn.execute("create index mine on gadget.part (colour)")
        await conn.execute("drop index audit.audit_logs_at")
    finally:
        await conn.close()
    await migrate(empty_url, products=releases("third"))
    found = {f.object: f.state for f in await verify(empty_url, products=releases("third"))}
    assert found == {
        "index gadget.part: mine": "added",
        "index audit.audit_logs: audit_logs_at": "missing",
    }


async def test_a_release_that_was_not_migrated_is_named(empty_url: str) -> None:
    await migrate(empty_url, products=releases("first"))
    found = await verify(empty_url, products=[kernel(), gadget("second")])
    assert {f.state for f in found} == {"outdated"}
    assert "file gadget/tables" in {f.object for f in found}


async def test_an_empty_database_has_no_schema_to_verify(empty_url: str) -> None:
    with pytest.raises(SchemaMissing):
        await verify(empty_url)


async def test_another_major_version_of_the_server_is_recorded_anew(
    conn: Session, database_url: str
) -> None:
    """As after pg_upgrade: definitions print differently there, which is no drift."""
    await conn.execute("update penstock.catalog set digest = '14' where object = 'file server'")
    await conn.execute(
        "update penstock.catalog set definition = 'as 14 printed it', digest = 'x' "
        "where kind in ('view', 'function')"
    )
    (finding,) = await verify(database_url)
    assert (finding.object, finding.state) == ("file server", "outdated")
    report = await migrate(database_url)
    assert report.products[0].action == "refresh"
    assert await verify(database_url) == ()
    assert not (await migrate(database_url)).changed
