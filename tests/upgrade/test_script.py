"""`schema print`: psql with the script = migrate, without a connection to write it."""

from collections.abc import Sequence
from pathlib import Path

import psycopg
import pytest
from tests.support.database import empty_database, own_cluster
from tests.support.schema import database_of, dump, gadget, records, releases

from penstock.kernel.errors import PostgresFailed, WrongUsage
from penstock.kernel.schema import migrate, select_products
from penstock.kernel.schema.products import LEDGER
from penstock.kernel.schema.script import print_install, print_upgrade
from penstock.kernel.schema.verify import verify
from penstock.kernel.sqlfiles import Product
from penstock.postgres import Cluster


def _psql(cluster: Cluster, url: str, script: str, *, path: Path) -> None:
    path.write_text(script)
    arguments = ("-X", "-q", "-1", "-v", "ON_ERROR_STOP=1", "-o", "/dev/null", "-f", str(path))
    cluster.run("psql", *arguments, database=database_of(url))


def _choices() -> dict[str, Sequence[Product]]:
    engine = select_products()
    return {
        "engine": engine,
        "ledger": select_products(LEDGER),
        "kernel": engine[:1],
        "gadget": releases("third"),
    }


@pytest.mark.parametrize("choice", list(_choices()))
async def test_the_printed_script_installs_what_migrate_installs(
    cluster: Cluster, tmp_path: Path, choice: str
) -> None:
    products = _choices()[choice]
    with empty_database(cluster) as by_script, empty_database(cluster) as by_migrate:
        _psql(cluster, by_script, print_install(products), path=tmp_path / "install.sql")
        await migrate(by_migrate, products=products)
        assert dump(cluster, by_script) == dump(cluster, by_migrate)
        assert await records(by_script) == await records(by_migrate)
        assert not (await migrate(by_script, products=products)).changed
        assert await verify(by_script, products=products) == ()


async def test_the_script_also_creates_the_roles(tmp_path: Path) -> None:
    with own_cluster() as fresh:
        with psycopg.connect(fresh.url(), autocommit=True) as conn:
            conn.execute("create role authenticated nologin")
        with empty_database(fresh) as url:
            products = releases("first")
            _psql(fresh, url, print_install(products), path=tmp_path / "install.sql")
            assert not (await migrate(url, products=products)).changed
            with psycopg.connect(url) as conn:
                told = "select has_function_privilege('authenticated', 'gadget.label()', 'execute')"
                assert conn.execute(told).fetchone() == (True,)


async def test_without_roles_the_script_equals_migrate_without_roles(tmp_path: Path) -> None:
    with own_cluster() as fresh:
        products = select_products()
        with empty_database(fresh) as by_script, empty_database(fresh) as by_migrate:
            script = print_install(products, roles=False)
            assert "create role" not in script
            _psql(fresh, by_script, script, path=tmp_path / "install.sql")
            await migrate(by_migrate, products=products, roles=False)
            assert dump(fresh, by_script) == dump(fresh, by_migrate)
            assert await records(by_script) == await records(by_migrate)


async def test_the_printed_upgrade_does_what_migrate_does(cluster: Cluster, tmp_path: Path) -> None:
    with empty_database(cluster) as by_script, empty_database(cluster) as by_migrate:
        for url in (by_script, by_migrate):
            await migrate(url, products=releases("first"))
        installed = releases("third")
        script = print_upgrade([gadget("third")], 1, installed=installed)
        _psql(cluster, by_script, script, path=tmp_path / "upgrade.sql")
        await migrate(by_migrate, products=installed)
        assert dump(cluster, by_script) == dump(cluster, by_migrate)
        assert await records(by_script) == await records(by_migrate)


async def test_a_script_refuses_the_wrong_database(cluster: Cluster, tmp_path: Path) -> None:
    with empty_database(cluster) as url:
        await migrate(url, products=releases("first"))
        before = await records(url)
        with pytest.raises(PostgresFailed, match="already installed"):
            _psql(cluster, url, print_install(releases("first")), path=tmp_path / "install.sql")
        upgrade = print_upgrade([gadget("third")], 2, installed=releases("third"))
        with pytest.raises(PostgresFailed, match="not at version 2"):
            _psql(cluster, url, upgrade, path=tmp_path / "upgrade.sql")
        assert await records(url) == before


def test_an_upgrade_from_a_version_that_never_was_is_wrong_usage() -> None:
    with pytest.raises(WrongUsage, match="versions 1 to 4"):
        print_upgrade([gadget("third")], 5, installed=releases("third"))
