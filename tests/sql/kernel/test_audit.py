"""audit.record, and what append-only means for the tables that are."""

from uuid import uuid4

import asyncpg
import pytest


async def _one_of_each(conn: "asyncpg.Connection[asyncpg.Record]") -> None:
    await conn.fetchval("select audit.record('replay', 'public.outbox', '{}', 'because')")
    await conn.execute(
        "select penstock.late_result('outbox', $1, $2, 1, 'done', null)", uuid4(), uuid4()
    )
    seq = await conn.fetchval(
        "insert into public.outbox (topic, payload) values ('t', '{}') returning seq"
    )
    token = uuid4()
    await conn.execute("select from app.outbox_claim(1, $1)", token)
    assert (
        await conn.fetchval(
            "select app.outbox_release(array[$1::bigint], array[$2::uuid])", seq, token
        )
        == 1
    )


@pytest.mark.parametrize(
    "table", ["audit.audit_logs", "penstock.late_results", "public.outbox_attempts"]
)
@pytest.mark.parametrize("role", ["origin", "replica"])
@pytest.mark.parametrize("statement", ["update {} set {} = {}", "delete from {}", "truncate {}"])
async def test_rows_of_the_record_cannot_be_changed_or_removed(
    conn: "asyncpg.Connection[asyncpg.Record]", table: str, role: str, statement: str
) -> None:
    await _one_of_each(conn)
    column = {"audit.audit_logs": "reason", "penstock.late_results": "verdict"}.get(
        table, "error_code"
    )
    await conn.execute(f"set session_replication_role = {role}")
    with pytest.raises(asyncpg.PostgresError) as refused:
        await conn.execute(statement.format(table, column, f"{column} || 'x'"))
    assert refused.value.sqlstate == "PN106"
    assert await conn.fetchval(f"select count(*) from {table}") == 1


async def test_a_partition_of_the_attempts_is_as_fixed_as_the_table(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    await _one_of_each(conn)
    name = await conn.fetchval("select tableoid::regclass::text from public.outbox_attempts")
    for statement in (f"delete from {name}", f"update {name} set error = 'x'", f"truncate {name}"):
        with pytest.raises(asyncpg.PostgresError) as refused:
            await conn.execute(statement)
        assert refused.value.sqlstate == "PN106", statement


async def test_an_audit_row_says_who_what_and_why(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    audit_id = await conn.fetchval(
        "select audit.record('replay', 'public.outbox', '{\"id\": 1}', 'because', 'ann')"
    )
    row = await conn.fetchrow("select * from audit.audit_logs where id = $1", audit_id)
    assert row is not None
    assert (row["operation"], row["table_name"]) == ("replay", "public.outbox")
    assert (row["actor"], row["operator"], row["reason"]) == ("postgres", "ann", "because")


@pytest.mark.parametrize("reason", [None, "", "   "])
async def test_an_action_without_a_reason_is_refused(
    conn: "asyncpg.Connection[asyncpg.Record]", reason: str | None
) -> None:
    with pytest.raises(asyncpg.PostgresError) as refused:
        await conn.fetchval("select audit.record('replay', 'public.outbox', '{}', $1)", reason)
    assert refused.value.sqlstate == "PN205"


async def test_an_audit_row_goes_with_the_transaction_it_belongs_to(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    transaction = conn.transaction()
    await transaction.start()
    await conn.fetchval("select audit.record('replay', 'public.outbox', '{}', 'because')")
    await transaction.rollback()
    assert await conn.fetchval("select count(*) from audit.audit_logs") == 0
