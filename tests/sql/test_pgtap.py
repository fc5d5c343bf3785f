"""The projects db1 and db2: their migrations give what `migrate` gives, their pgTAP files pass.

Everything runs as a login like Supabase's: no superuser, CREATEROLE, owner of its database.
"""

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from tests.support.database import administer, empty_database, own_cluster
from tests.support.pgtap import (
    PGTAP,
    load_pgtap,
    provide_pgmq,
    psql,
    push,
    read_tap,
    run_file,
    seed,
    tree,
)
from tests.support.schema import dump, records

from penstock.kernel.schema import migrate, select_products
from penstock.kernel.schema.verify import verify
from penstock.postgres import Cluster

LOGIN = "project_login"
PRODUCT = {"db1": "intake", "db2": "ledger"}
FILES = [
    "db1/00001_intake_tables.test.sql",
    "db1/00002_intake_functions.test.sql",
    "db1/00003_intake_cron.test.sql",
    "db2/00001_db2_ledger.test.sql",
]

pytestmark = pytest.mark.timeout(120)
needs_pgtap = pytest.mark.skipif(
    not PGTAP, reason="pgTAP is not installed (Debian: postgresql-15-pgtap)"
)


@pytest.fixture(scope="module")
def server() -> Iterator[Cluster]:
    """A server with Supabase's roles and such a login."""
    with own_cluster() as running:
        for role in ("anon", "authenticated", "service_role"):
            administer(running, "create role {role} nologin", role=role)
        administer(running, "create role {role} login createrole", role=LOGIN)
        yield running


@pytest.fixture(scope="module")
def projects(server: Cluster) -> Iterator[dict[str, str]]:
    """The URL of each project's database, migrated, seeded, with pgTAP where it is installed."""
    with empty_database(server, LOGIN) as engine, empty_database(server, LOGIN) as ledger:
        provide_pgmq(engine)
        urls = {"db1": engine, "db2": ledger}
        for project, url in urls.items():
            push(server, url, project)
            seed(server, url, project)
            if PGTAP:
                load_pgtap(server, url)
        yield urls


@pytest.mark.parametrize("project", ["db1", "db2"])
async def test_the_migrations_give_what_migrate_gives(server: Cluster, project: str) -> None:
    products = select_products(only=PRODUCT[project])
    with empty_database(server, LOGIN) as pushed, empty_database(server, LOGIN) as migrated:
        if project == "db1":
            provide_pgmq(pushed)
            provide_pgmq(migrated)
        push(server, pushed, project)
        await migrate(migrated, products=products)
        # Rights of one object may be listed in another order; that has no meaning.
        assert sorted(dump(server, pushed).splitlines()) == sorted(
            dump(server, migrated).splitlines()
        )
        assert await records(pushed) == await records(migrated)
        assert await verify(pushed, products=products) == ()


def test_the_seed_stocks_the_demo_pool_once(server: Cluster, projects: dict[str, str]) -> None:
    seed(server, projects["db1"], "db1")
    with psycopg.connect(projects["db1"]) as conn:
        config = conn.execute(
            "select pool_id, batch_size, visibility_timeout_sec, max_retries, is_active"
            " from engine_config"
        ).fetchall()
        slots = conn.execute("select status::text, count(*) from inventory_slots group by 1")
        assert slots.fetchall() == [("AVAILABLE", 1000)]
    assert config == [("demo_concert_2026", 100, 45, 10, True)]
    seed(server, projects["db2"], "db2")
    with psycopg.connect(projects["db2"]) as conn:
        assert conn.execute("select count(*) from confirmed_tickets").fetchone() == (0,)


def test_every_test_file_is_run() -> None:
    found = [
        f"{project}/{path.name}"
        for project in PRODUCT
        for path in sorted((tree(project) / "tests").glob("*.sql"))
    ]
    assert found == FILES


@needs_pgtap
@pytest.mark.parametrize("name", FILES)
def test_pgtap(server: Cluster, projects: dict[str, str], name: str) -> None:
    project, _, file = name.partition("/")
    tap = run_file(server, projects[project], tree(project) / "tests" / file)
    print(f"{name}: {tap.passed} of {tap.planned} passed", *tap.skipped, sep="\n")
    assert tap.failed == ()
    assert tap.complete


@needs_pgtap
@pytest.mark.parametrize(
    ("name", "harm", "noticed"),
    [
        (FILES[0], "alter table inventory_slots set unlogged", "a crash does not empty the sale"),
        (FILES[0], "drop index idx_available_slots", "index of free slots"),
        (
            FILES[3],
            "alter table confirmed_tickets disable row level security",
            "row security is on",
        ),
    ],
)
def test_pgtap_notices(
    *, server: Cluster, projects: dict[str, str], tmp_path: Path, name: str, harm: str, noticed: str
) -> None:
    """The same file with one harm done first, inside its own transaction."""
    project, _, file = name.partition("/")
    text = (tree(project) / "tests" / file).read_text("utf-8")
    harmed = tmp_path / file
    harmed.write_text(text.replace("begin;\n", f"begin;\n{harm};\n", 1), "utf-8")
    tap = run_file(server, projects[project], harmed)
    assert not tap.complete
    assert any(noticed in line for line in tap.failed)


def test_a_report_is_read() -> None:
    tap = read_tap("1..3\nok 1 - fine\nnot ok 2 - broken\n# why\nok 3 - # SKIP not here\n")
    assert (tap.planned, tap.passed) == (3, 1)
    assert tap.failed == ("2 - broken",)
    assert tap.skipped == ("3 - # SKIP not here",)
    assert not tap.complete
    assert not read_tap("1..2\nok 1 - fine\n").complete, "a test that did not run is no success"
    assert not read_tap("").complete


def test_psql_stops_at_an_error(server: Cluster) -> None:
    with pytest.raises(Exception, match="does not exist"):
        psql(server, server.url(), "-c", "select no_such_function()")
