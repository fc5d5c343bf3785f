"""A check, what it is given and what it may find."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import asyncpg

from penstock.kernel.errors import NotPermitted, PenstockError
from penstock.kernel.queue import Connection
from penstock.kernel.settings import Settings
from penstock.kernel.sqlfiles import Product

Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong, and the safe thing to do about it."""

    check: str
    severity: Severity
    finding: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Examination:
    """What a check may use: one connection, the settings, the products that should be there."""

    conn: Connection
    settings: Settings
    products: Sequence[Product]


@dataclass(frozen=True, slots=True)
class Check:
    """A named look at one thing. `run` yields nothing when all is well."""

    name: str
    run: Callable[[Examination], Awaitable[list[Finding]]]
    needs_schema: bool = False


async def examine(
    examination: Examination, checks: Sequence[Check]
) -> tuple[list[Finding], list[str]]:
    """Run the checks; returns the findings and the names of those that found nothing.

    A check that cannot look is a finding too. Without a schema, those that read it are left out.
    """
    findings: list[Finding] = []
    passed: list[str] = []
    broken_schema = False
    for check in checks:
        if check.needs_schema and broken_schema:
            continue
        found = await _run(check, examination)
        findings.extend(found)
        if not found:
            passed.append(check.name)
        elif check.name == "schema":
            broken_schema = True
    return findings, passed


async def _run(check: Check, examination: Examination) -> list[Finding]:
    try:
        return await check.run(examination)
    except NotPermitted as error:
        return [Finding(check.name, "warning", f"could not look: {error.what}", error.todo)]
    except PenstockError as error:
        return [Finding(check.name, "error", f"could not look: {error.what}", error.todo)]
    except asyncpg.PostgresError as error:
        remedy = "report it with the server's version"
        return [Finding(check.name, "warning", f"could not look: {error}", remedy)]
