"""The trees under db1/ and db2/ as Supabase's tools use them: migrations, seed, pgTAP files."""

import re
from dataclasses import dataclass
from pathlib import Path

import psycopg
from tests.support.schema import database_of
from tests.support.sources import ROOT

from penstock.kernel.schema import select_products
from penstock.kernel.schema.apply import BECOME_LOGIN, BECOME_OWNER, Target
from penstock.kernel.schema.prerequisites import prerequisites
from penstock.kernel.schema.roles import ROLES, roles_script
from penstock.postgres import Cluster

# Debian's package; its SQL is plain and loads into any version of the server.
PGTAP = tuple(sorted(Path("/usr/share/postgresql").glob("*/extension/pgtap.sql")))
_LINE = re.compile(r"^(not )?ok (\d+)(.*)$", re.MULTILINE)
_PLAN = re.compile(r"^1\.\.(\d+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Tap:
    """What one test file reported."""

    planned: int
    passed: int
    skipped: tuple[str, ...]
    failed: tuple[str, ...]

    @property
    def complete(self) -> bool:
        """Whether every planned test ran and none failed."""
        return not self.failed and self.planned == self.passed + len(self.skipped) > 0


def read_tap(text: str) -> Tap:
    """Read what pgTAP prints."""
    plan = _PLAN.search(text)
    lines = [(bool(no), f"{number}{rest}") for no, number, rest in _LINE.findall(text)]
    skipped = tuple(rest for no, rest in lines if not no and "# SKIP" in rest)
    return Tap(
        planned=int(plan.group(1)) if plan else 0,
        passed=sum(not no for no, _ in lines) - len(skipped),
        skipped=skipped,
        failed=tuple(rest for no, rest in lines if no),
    )


def tree(project: str) -> Path:
    """The folder of a project, db1 or db2."""
    return ROOT / project / "supabase"


def psql(cluster: Cluster, url: str, *arguments: str) -> str:
    """Run psql so that an error ends it, and print rows only."""
    quiet = ("-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1")
    return cluster.run("psql", *quiet, *arguments, "-d", url, database=database_of(url))


def provide_pgmq(url: str) -> None:
    """Stand in for the server's extension: the same objects from the package's SQL."""
    target = Target(True, frozenset(ROLES))
    with psycopg.connect(url) as conn:
        conn.execute(roles_script().encode())
        for step in prerequisites(select_products(only="intake")[-1], target):
            conn.execute((BECOME_OWNER if step.as_owner else BECOME_LOGIN).encode())
            conn.execute(step.sql.encode())


def push(cluster: Cluster, url: str, project: str) -> None:
    """Run a project's migrations, each in one transaction."""
    for path in sorted((tree(project) / "migrations").glob("*.sql")):
        psql(cluster, url, "-1", "-f", str(path))


def seed(cluster: Cluster, url: str, project: str) -> None:
    """Run a project's seed."""
    psql(cluster, url, "-1", "-f", str(tree(project) / "seed.sql"))


def load_pgtap(cluster: Cluster, url: str) -> None:
    """Bring pgTAP's functions into the schema that Supabase keeps for extensions."""
    psql(
        cluster,
        url,
        *("-c", "drop schema if exists extensions cascade"),
        *("-c", "create schema extensions; set search_path = extensions"),
        *("-f", str(PGTAP[-1])),
    )


def run_file(cluster: Cluster, url: str, path: Path) -> Tap:
    """Run one test file."""
    return read_tap(
        psql(cluster, url, "-c", "set search_path = public, extensions", "-f", str(path))
    )
