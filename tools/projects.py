"""The projects db1 and db2 on embedded Postgres: start, status, reset, test, stop.

`start` brings both up with their migrations and seeds, `reset` does the same from nothing, `test`
runs their pgTAP files. The same by Supabase's own tool: `supabase start`, `db reset`, `test db`.
"""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
from tests.support.pgtap import PGTAP, load_pgtap, provide_pgmq, push, run_file, seed, tree

from penstock.kernel.errors import PenstockError
from penstock.postgres import Cluster, named_cluster

DATABASE = "project"
PORT = 54322
PORT_STEP = 100


@dataclass(frozen=True, slots=True)
class Project:
    """One of the two: its folder and its server."""

    name: str
    cluster: Cluster

    @property
    def url(self) -> str:
        """The address of its database."""
        return self.cluster.url(DATABASE)

    def exists(self) -> bool:
        """Whether its database is there."""
        with psycopg.connect(self.cluster.url()) as conn:
            found = conn.execute("select from pg_database where datname = %s", [DATABASE])
            return found.fetchone() is not None

    def make(self) -> None:
        """A new database with the migrations and the seed, as after `supabase db reset`."""
        self.cluster.drop_database(DATABASE)
        self.cluster.create_database(DATABASE)
        if self.name == "db1":
            provide_pgmq(self.url)
        push(self.cluster, self.url, self.name)
        seed(self.cluster, self.url, self.name)

    def test(self) -> bool:
        """Run its test files; whether all passed. None at all is no failure."""
        files = sorted((tree(self.name) / "tests").glob("*.test.sql"))
        if not files:
            print(f"{self.name}: no tests found")
            return True
        load_pgtap(self.cluster, self.url)
        passed = True
        for path in files:
            tap = run_file(self.cluster, self.url, path)
            print(f"{self.name}/{path.name}: {tap.passed} of {tap.planned} passed")
            for line in (*tap.skipped, *(f"not ok {one}" for one in tap.failed)):
                print(f"  {line}")
            passed = passed and tap.complete
        return passed


def projects(only: str | None, port: int, state: Path | None) -> Iterator[Project]:
    """Both, or the one that is asked for."""
    for number, name in enumerate(("db1", "db2")):
        if only in (None, name):
            at = port + number * PORT_STEP
            yield Project(name, named_cluster(f"project-{name}", port=at, state_dir=state))


def start(project: Project) -> bool:
    """Start the server; make the database if it is new."""
    project.cluster.start()
    if not project.exists():
        project.make()
    return status(project)


def status(project: Project) -> bool:
    """Say whether it runs, and where."""
    up = project.cluster.is_running()
    print(f"{project.name}: {project.cluster.tcp_url(DATABASE) if up else 'not running'}")
    return up


def reset(project: Project) -> bool:
    """Start the server and make the database anew."""
    project.cluster.start()
    project.make()
    return status(project)


def test(project: Project) -> bool:
    """Run the SQL tests."""
    if not PGTAP:
        print("not run: pgTAP is not installed (Debian: postgresql-15-pgtap)")
        return False
    project.cluster.start()
    if not project.exists():
        project.make()
    return project.test()


def stop(project: Project) -> bool:
    """Stop the server; the data stays."""
    project.cluster.stop()
    return True


ACTIONS = {"start": start, "status": status, "reset": reset, "test": test, "stop": stop}


def main() -> int:
    """Do one thing to one project or both; 1 if something is not as it should be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=ACTIONS)
    parser.add_argument("project", nargs="?", choices=("db1", "db2"), help="both if not given")
    parser.add_argument("--port", type=int, default=PORT, help="of db1; db2 has the one 100 higher")
    parser.add_argument("--state", type=Path, help="where the data lies, if not in the usual place")
    given = parser.parse_args()
    try:
        chosen = projects(given.project, given.port, given.state)
        fine = [ACTIONS[given.action](one) for one in chosen]  # each one, whatever the others say
        return 0 if all(fine) else 1
    except PenstockError as error:
        print(error.explain(), file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
