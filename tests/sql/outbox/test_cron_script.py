"""The optional script for pg_cron: harmless where there is none, and its jobs are what they say."""

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from tests.support.database import run_apart

from penstock.kernel.schema import migrate, select_products
from penstock.kernel.sqlfiles import optional_script
from penstock.postgres import Cluster, throwaway_cluster
from penstock.postgres.binaries import examine

DEBIAN = Path("/usr/lib/postgresql/15")
SCRIPT = optional_script("penstock.outbox", "cron")
HOUSEKEEPING = {
    "outbox-partitions": "select app.outbox_partitions()",
    "outbox-check-keys": "select app.outbox_check_keys()",
    "outbox-dedupe": "select app.outbox_purge_dedupe()",
    "outbox-retention": "select app.outbox_purge_relays()",
    "outbox-removals": "select app.outbox_remove_step(p_limit => 10000)",
    "outbox-alerts": "select app.outbox_tend_alerts()",
}


def _run(url: str) -> list[str]:
    notices: list[str] = []
    with psycopg.connect(url, autocommit=True) as conn:
        conn.add_notice_handler(lambda notice: notices.append(notice.message_primary or ""))
        conn.execute(SCRIPT.encode())
    return notices


def test_without_pg_cron_nothing_is_scheduled_and_it_says_so(database_url: str) -> None:
    notices = _run(database_url)
    assert any("no pg_cron" in notice or "no jobs" in notice for notice in notices)
    assert any("outbox-relay" in notice for notice in notices)


@pytest.fixture(scope="module")
def cron_url() -> Iterator[str]:
    """A database of a server that has pg_cron loaded."""
    binaries = examine(DEBIAN / "bin", "Debian")
    if binaries is None or not (DEBIAN / "lib" / "pg_cron.so").exists():
        pytest.skip("pg_cron is not installed (Debian: postgresql-15-cron)")
    settings = {"shared_preload_libraries": "pg_cron", "cron.database_name": "engine"}
    with throwaway_cluster(binaries=binaries, settings=settings) as cluster:
        yield _engine(cluster)


def _engine(cluster: Cluster) -> str:
    with psycopg.connect(cluster.url(), autocommit=True) as conn:
        conn.execute("create database engine")
    url = cluster.url("engine")
    run_apart(lambda: migrate(url, products=select_products(only="outbox")))
    return url


@pytest.mark.timeout(120)
def test_with_pg_cron_housekeeping_is_scheduled_once_however_often_it_runs(cron_url: str) -> None:
    for _ in range(2):
        notices = _run(cron_url)
    with psycopg.connect(cron_url) as conn:
        rows = conn.execute("select jobname, command from cron.job").fetchall()
        jobs = {str(name): str(command) for name, command in rows}
        assert jobs == HOUSEKEEPING
        for command in jobs.values():
            conn.execute(command.encode())
    assert any("outbox-relay" in notice for notice in notices)  # there is no pg_net here
    with psycopg.connect(cron_url) as conn, pytest.raises(psycopg.Error):
        # Why the script has a second try: this pg_cron knows no seconds.
        conn.execute("select cron.schedule('outbox-relay', '10 seconds', 'select 1')")
