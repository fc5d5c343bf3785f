"""Contacts: who an address belongs to is entered by producers, and told to its own tenant only."""

from typing import TypeAlias
from uuid import UUID, uuid4

import asyncpg
import pytest

Session: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
RESOLVE = "select app.resolve_identity($1, $2, $3)"
INSERT = """insert into contact_identities (tenant_id, contact_id, type, value)
            values ($1, $2, $3, $4)"""


async def _bind(conn: Session, tenant: UUID | None) -> None:
    """Let the session act for a tenant, or for all."""
    await conn.execute("reset role")
    await conn.execute("select set_config('penstock.tenant', $1, false)", str(tenant or ""))
    await conn.execute("set role penstock_outbox_ingest")


async def test_a_producer_enters_identities_by_plain_sql(conn: Session) -> None:
    tenant, contact = uuid4(), uuid4()
    await _bind(conn, None)
    await conn.execute(INSERT, tenant, contact, "external_id", "acct_123")
    await conn.execute(INSERT, tenant, contact, "email", "Alice@Example.com")
    for kind, value in (("external_id", "acct_123"), ("email", "alice@example.com")):
        with pytest.raises(asyncpg.UniqueViolationError):
            await conn.execute(INSERT, tenant, uuid4(), kind, value)
        assert await conn.fetchval(RESOLVE, tenant, kind, value) == contact
    await conn.execute(INSERT, uuid4(), uuid4(), "email", "alice@example.com")
    for refused in (" bob@example.com", "", "x" * 501):
        with pytest.raises(asyncpg.CheckViolationError):
            await conn.execute(INSERT, tenant, contact, "email", refused)
    with pytest.raises(asyncpg.NotNullViolationError):
        await conn.execute(INSERT, None, contact, "email", "bob@example.com")


async def test_a_tenant_learns_and_changes_nothing_of_another(conn: Session) -> None:
    mine, other, contact = uuid4(), uuid4(), uuid4()
    await _bind(conn, None)
    await conn.execute(INSERT, other, contact, "email", "alice@example.com")
    await _bind(conn, mine)
    with pytest.raises(asyncpg.PostgresError) as refused:
        await conn.fetchval(RESOLVE, other, "email", "alice@example.com")
    assert refused.value.sqlstate == "PN007"
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await conn.execute(INSERT, other, contact, "external_id", "acct_9")
    await conn.execute(INSERT, mine, contact, "external_id", "acct_9")
    assert await conn.fetchval(RESOLVE, None, "external_id", "acct_9") == contact
    assert await conn.fetchval(RESOLVE, mine, "email", "alice@example.com") != contact


@pytest.mark.parametrize("kind", ["phone", "", None])
async def test_only_what_is_unique_can_be_resolved(conn: Session, kind: str | None) -> None:
    with pytest.raises(asyncpg.PostgresError) as refused:
        await conn.fetchval(RESOLVE, uuid4(), kind, "x")
    assert refused.value.sqlstate == "PN005"
