"""`migrate`: fresh, again, at once, killed, by whom, and how much of it."""

import asyncio
import signal
from collections.abc import Iterator

import asyncpg
import psycopg
import pytest
from tests.support.database import empty_database, own_cluster, server_binaries
from tests.support.schema import dump, gadget, kernel, penstock, records, releases

from penstock.kernel.errors import NotPermitted, PostgresFailed, WrongUsage
from penstock.kernel.schema import ROLES, migrate, select_products
from penstock.kernel.schema.session import Session
from penstock.kernel.schema.verify import verify
from penstock.postgres import Binaries, Cluster, find_binaries


def _versions() -> dict[str, Binaries]:
    """The server under test, and version 15 where it is installed beside it."""
    found = {f"postgres-{server_binaries().major}": server_binaries()}
    try:
        oldest = find_binaries(major=15)
    except PostgresFailed:
        return found
    return {**found, f"postgres-{oldest.major}": oldest}


VERSIONS = _versions()


@pytest.fixture(scope="module", params=list(VERSIONS.values()), ids=list(VERSIONS))
def fresh_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster without our roles, where only a login with CREATEROLE may make them."""
    with own_cluster(request.param) as running:
        with psycopg.connect(running.url(), autocommit=True) as conn:
            conn.execute("create role landlord login createrole")
            conn.execute("create role tenant login")
        yield running


async def _count_of_product_objects(url: str, schema: str) -> int:
    conn: Session = await asyncpg.connect(url)
    try:
        count: int = await conn.fetchval(
            "select (select count(*) from pg_class where relnamespace = n.oid)"
            " + (select count(*) from pg_proc where pronamespace = n.oid)"
            " from (select to_regnamespace($1)::oid as oid) n",
            schema,
        )
    finally:
        await conn.close()
    return count


async def test_a_second_run_does_nothing(empty_url: str) -> None:
    first = await migrate(empty_url)
    before = await records(empty_url)
    second = await migrate(empty_url)
    assert {p.action for p in first.products} == {"install"}
    assert {p.action for p in second.products} == {"nothing"}
    assert not second.changed
    assert await records(empty_url) == before
    assert await verify(empty_url) == ()


async def test_a_dry_run_tells_the_plan_and_changes_nothing(empty_url: str) -> None:
    report = await migrate(empty_url, dry_run=True)
    assert report.changed
    assert "create tables" in report.products[0].steps
    assert await _count_of_product_objects(empty_url, "penstock") in {0, None}


async def test_only_creates_nothing_of_the_others(empty_url: str) -> None:
    await migrate(empty_url, only="kernel")
    assert await _count_of_product_objects(empty_url, "penstock") > 0
    assert not await _count_of_product_objects(empty_url, "app")
    versions, _ = await records(empty_url)
    assert {row[0] for row in versions} == {"kernel"}


async def test_an_addition_later_is_the_same_as_all_at_once(cluster: Cluster) -> None:
    with empty_database(cluster) as together, empty_database(cluster) as apart:
        await migrate(together, products=releases("first"))
        await migrate(apart, products=[kernel()])
        await migrate(apart, products=releases("first"))
        assert dump(cluster, apart) == dump(cluster, together)
        assert await records(apart) == await records(together)


async def test_several_at_once_all_end_well(empty_url: str) -> None:
    reports = await asyncio.gather(*(migrate(empty_url) for _ in range(4)))
    actions = [tuple(p.action for p in report.products) for report in reports]
    for place in range(len(actions[0])):
        assert sorted(a[place] for a in actions) == ["install", "nothing", "nothing", "nothing"]
    assert await verify(empty_url) == ()


async def test_several_databases_of_a_new_cluster_at_once(fresh_cluster: Cluster) -> None:
    with (
        empty_database(fresh_cluster, "landlord") as one,
        empty_database(fresh_cluster, "landlord") as two,
        empty_database(fresh_cluster, "landlord") as three,
    ):
        urls = (one, two, three)
        await asyncio.gather(*(migrate(url, products=[kernel()]) for url in urls))
        for url in urls:
            assert await verify(url) == ()


@pytest.mark.fault
@pytest.mark.parametrize("product", [1, 2])
async def test_killed_in_the_middle_leaves_nothing_half_done(
    cluster: Cluster, product: int
) -> None:
    with empty_database(cluster) as url, empty_database(cluster) as whole:
        await migrate(whole)
        failpoints = {"PENSTOCK_FAILPOINTS": f"mid_migration=kill@{product}"}
        ran = await asyncio.to_thread(penstock, "migrate", url=url, environ=failpoints)
        assert ran.code == -signal.SIGKILL
        names = [p.name for p in select_products()]
        if product == 1:
            assert not await _count_of_product_objects(url, "penstock")
        else:
            versions, _ = await records(url)
            assert {row[0] for row in versions} == set(names[: product - 1])
            assert await verify(url) == ()
        report = await migrate(url)
        assert [p.action for p in report.products] == ["nothing"] * (product - 1) + ["install"] * (
            len(names) - product + 1
        )
        assert dump(cluster, url) == dump(cluster, whole)
        assert await verify(url) == ()


async def test_an_owner_without_superuser_suffices(fresh_cluster: Cluster) -> None:
    with empty_database(fresh_cluster, "landlord") as url:
        await migrate(url)
        again = await migrate(url)
        assert not again.changed
        assert await verify(url) == ()
        conn: Session = await asyncpg.connect(url)
        try:
            owners = await conn.fetch(
                "select distinct pg_get_userbyid(relowner)::text as owner from pg_class c "
                "join pg_namespace n on n.oid = c.relnamespace where n.nspname = 'penstock'"
            )
            # What the functions do, they do as an owner that nobody can log in as.
            assert [row["owner"] for row in owners] == ["penstock_owner"]
            logins = await conn.fetchval(
                "select count(*) from pg_roles where rolname like 'penstock%' and "
                "(rolcanlogin or rolsuper or rolcreaterole or rolcreatedb or rolbypassrls)"
            )
            assert logins == 0
        finally:
            await conn.close()


async def test_a_login_without_rights_is_told_what_to_do(fresh_cluster: Cluster) -> None:
    with empty_database(fresh_cluster, "landlord") as made:
        await migrate(made, products=[kernel()])
    with empty_database(fresh_cluster, "tenant") as url, pytest.raises(NotPermitted) as caught:
        await migrate(url)
    assert "--no-roles" in caught.value.todo


async def test_without_roles_the_login_owns_everything(fresh_cluster: Cluster) -> None:
    with empty_database(fresh_cluster, "tenant") as url:
        report = await migrate(url, roles=False)
        assert report.roles_created == ()
        assert await verify(url) == ()
        assert not (await migrate(url, roles=False)).changed
        with pytest.raises(WrongUsage, match="without our roles"):
            await migrate(url)
        conn: Session = await asyncpg.connect(url)
        try:
            owner = await conn.fetchval(
                "select pg_get_userbyid(relowner)::text from pg_class "
                "where oid = 'penstock.queue'::regclass"
            )
            assert owner == "tenant"
        finally:
            await conn.close()


async def test_without_roles_grants_reach_the_roles_that_exist() -> None:
    with own_cluster() as running:
        with psycopg.connect(running.url(), autocommit=True) as admin:
            admin.execute("create role tenant login")
            admin.execute("create role penstock_readonly nologin")
        with empty_database(running, "tenant") as url:
            await migrate(url, roles=False)
            conn: Session = await asyncpg.connect(url)
            try:
                ours = await conn.fetch(
                    "select rolname::text as name from pg_roles where rolname = any($1)",
                    list(ROLES),
                )
                assert [row["name"] for row in ours] == ["penstock_readonly"]
                assert await conn.fetchval(
                    "select has_table_privilege('penstock_readonly', 'penstock.queue', 'select')"
                )
            finally:
                await conn.close()


async def test_supabase_roles_join_our_groups_and_stay_as_they_are() -> None:
    with own_cluster() as running:
        with psycopg.connect(running.url(), autocommit=True) as admin:
            for role in ("anon", "authenticated", "service_role"):
                admin.execute(f"create role {role} nologin noinherit")
        with empty_database(running) as url:
            await migrate(url, products=releases("first"))
            conn: Session = await asyncpg.connect(url)
            try:
                rows = await conn.fetch(
                    "select r.rolname::text as role, array(select g.rolname::text from pg_roles g "
                    "where g.rolname like 'penstock%' and pg_has_role(r.oid, g.oid, 'member') "
                    "order by 1) as groups, r.rolinherit from pg_roles r "
                    "where r.rolname in ('anon', 'authenticated', 'service_role') order by 1"
                )
                groups = {row["role"]: row["groups"] for row in rows}
                assert groups["anon"] == []
                assert groups["authenticated"] == ["penstock_intake_ingest"]
                assert groups["service_role"] == sorted(
                    role for role in ROLES if role.endswith(("_ingest", "_executor"))
                )
                assert not any(row["rolinherit"] for row in rows)
                # The test product grants to this role directly; elsewhere that grant is left out.
                assert await conn.fetchval(
                    "select has_function_privilege('authenticated', 'gadget.label()', 'execute')"
                )
            finally:
                await conn.close()


async def test_a_shared_schema_is_used_and_left_to_its_owner(cluster: Cluster) -> None:
    with empty_database(cluster) as url:
        conn: Session = await asyncpg.connect(url)
        try:
            await conn.execute("create schema gadget; create table gadget.mine (x int)")
            await migrate(url, products=releases("first"))
            assert await verify(url, products=releases("first")) == ()
            await conn.execute("alter table gadget.mine add column y int")
            assert await verify(url, products=releases("first")) == ()
            owner = await conn.fetchval(
                "select nspowner::regrole::text from pg_namespace where nspname = 'gadget'"
            )
            assert owner == "postgres"
        finally:
            await conn.close()
    assert gadget("first").version == 1
