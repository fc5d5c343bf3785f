"""Puts a login into one of our groups, with an audit row in the same transaction."""

from dataclasses import dataclass
from uuid import UUID

from penstock.kernel.database import translated
from penstock.kernel.errors import NotFound, WrongUsage
from penstock.kernel.schema.roles import OWNER, ROLES
from penstock.kernel.schema.session import Session, session

_MEMBER = """
select login.rolname is not null as known,
       coalesce(pg_catalog.pg_has_role(login.oid, ours.oid, 'member') and not login.rolsuper, false)
           as member,
       ours.rolname is not null as created
from (values ($1::text, $2::text)) as w (role, login)
left join pg_catalog.pg_roles login on login.rolname = w.login
left join pg_catalog.pg_roles ours on ours.rolname = w.role
"""
_AUDITED = "select to_regprocedure('audit.record(text, text, jsonb, text, text)') is not null"
_RECORD = """
select audit.record('grant', 'pg_auth_members',
                    jsonb_build_object('role', $1::text, 'login', $2::text), $3)
"""


@dataclass(frozen=True, slots=True)
class GrantPlan:
    """What a grant would do; nothing when the login is a member already."""

    role: str
    login: str
    already: bool


async def plan_grant(url: str, role: str, login: str) -> GrantPlan:
    """Check the role and the login; raises WrongUsage or NotFound, changes nothing."""
    if role not in ROLES or role == OWNER:
        offered = ", ".join(name for name in ROLES if name != OWNER)
        raise WrongUsage(f"'{role}' is not a role that can be granted; there are: {offered}")
    async with session(url) as conn:
        with translated():
            row = await conn.fetchrow(_MEMBER, role, login)
    assert row is not None
    if not row["created"]:
        raise NotFound(f"the role {role} does not exist here", todo="run `penstock migrate` first.")
    if not row["known"]:
        raise NotFound(
            f"there is no login '{login}'", todo="create it first: `create role … login`."
        )
    return GrantPlan(role, login, already=row["member"])


async def grant(url: str, plan: GrantPlan, *, reason: str) -> UUID | None:
    """Do what the plan says; return the id of the audit row, None where there is no audit log."""
    async with session(url) as conn:
        with translated():
            async with conn.transaction():
                # The server quotes both names; the text never meets a name that we put together.
                statement = await conn.fetchval(
                    "select format('grant %I to %I', $1::text, $2::text)", plan.role, plan.login
                )
                await conn.execute(statement)
                return await _record(conn, plan, reason)


async def _record(conn: Session, plan: GrantPlan, reason: str) -> UUID | None:
    if not await conn.fetchval(_AUDITED):
        return None
    audit_id: UUID = await conn.fetchval(_RECORD, plan.role, plan.login, reason)
    return audit_id
