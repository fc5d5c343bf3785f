"""A check, what it is given and what it may find."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
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
    """What a check may use: one connection, the settings, the products that should be there.

    `unclaimed` are the products' own counts of ready items that no worker can claim, by queue.
    """

    conn: Connection
    settings: Settings
    products: Sequence[Product]
    unclaimed: "Sequence[Callable[[Examination], Awaitable[Mapping[str, int]]]]" = ()


@dataclass(frozen=True, slots=True)
class Check:
    """A named look at one thing. `run` yields nothing when all is well."""

    name: str
    run: Callable[[Examination], Awaitable[list[Finding]]]
    needs_schema: bool = False


class CannotSee(Exception):
    """A check lacks the right to look, so that its silence would mean nothing."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.remedy = remedy


@dataclass(frozen=True, slots=True)
class Skipped:
    """A check that did not look, and what would let it."""

    check: str
    reason: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What was found, what is well, and what could not be looked at."""

    findings: tuple[Finding, ...]
    passed: tuple[str, ...]
    skipped: tuple[Skipped, ...]


async def examine(examination: Examination, checks: Sequence[Check]) -> Diagnosis:
    """Run the checks. Without a fitting schema, those that read it are skipped."""
    findings: list[Finding] = []
    passed: list[str] = []
    skipped: list[Skipped] = []
    broken_schema = False
    for check in checks:
        if check.needs_schema and broken_schema:
            skipped.append(Skipped(check.name, "needs the schema", "penstock migrate"))
            continue
        try:
            found = await _run(check, examination)
        except CannotSee as blind:
            skipped.append(Skipped(check.name, blind.reason, blind.remedy))
            continue
        findings.extend(found)
        if not found:
            passed.append(check.name)
        broken_schema = broken_schema or (check.name == "schema" and bool(found))
    return Diagnosis(tuple(findings), tuple(passed), tuple(skipped))


async def _run(check: Check, examination: Examination) -> list[Finding]:
    try:
        return await check.run(examination)
    except NotPermitted as error:
        raise CannotSee(error.what, error.todo) from error
    except PenstockError as error:
        return [Finding(check.name, "error", f"could not look: {error.what}", error.todo)]
    except asyncpg.PostgresError as error:
        remedy = "report it with the server's version"
        return [Finding(check.name, "warning", f"could not look: {error}", remedy)]
