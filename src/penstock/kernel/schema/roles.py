"""Database roles: our groups, and the right of the migrating login to act as their owner."""

import asyncio
from importlib.resources import files

import asyncpg

from penstock.kernel.backoff import Backoff
from penstock.kernel.errors import NotPermitted
from penstock.kernel.schema.session import Session

OWNER = "penstock_owner"
ROLES = (
    OWNER,
    *(
        f"penstock_{product}_{side}"
        for product in ("intake", "outbox", "payments", "inbox")
        for side in ("ingest", "executor")
    ),
    "penstock_ledger_writer",
    "penstock_operator",
    "penstock_control",
    "penstock_readonly",
    "penstock_auditor",
)
_ATTEMPTS = 10


def roles_script() -> str:
    """The statement that creates missing roles; the same for `migrate` and `schema print`."""
    return files(__package__).joinpath("roles.sql").read_text("utf-8")


async def existing_roles(conn: Session) -> frozenset[str]:
    """The names of all roles of the cluster."""
    rows = await conn.fetch("select rolname::text as name from pg_catalog.pg_roles")
    return frozenset(row["name"] for row in rows)


async def ensure_roles(conn: Session) -> tuple[str, ...]:
    """Create the roles that are missing; return their names. Idempotent, safe to run at once.

    Other databases of the cluster may do the same at this moment and no lock spans databases, so
    a collision is repeated in a fresh transaction.
    """
    before = await existing_roles(conn)
    pause = Backoff(base_s=0.01, cap_s=0.2)
    for attempt in range(_ATTEMPTS):
        try:
            async with conn.transaction():
                await conn.execute(roles_script())
            break
        except (asyncpg.InternalServerError, asyncpg.UniqueViolationError):
            # "tuple concurrently updated" has no code of its own.
            if attempt == _ATTEMPTS - 1:
                raise
            await asyncio.sleep(pause.delay_s(attempt + 1))
        except asyncpg.InsufficientPrivilegeError as error:
            raise NotPermitted(
                f"{error.message}",
                happened="the migrating login can neither create our roles nor join their owner.",
                todo="migrate as a login with CREATEROLE, let an administrator run "
                f"`grant {OWNER} to LOGIN`, or use --no-roles and manage roles yourself.",
            ) from error
    return tuple(role for role in ROLES if role not in before)
