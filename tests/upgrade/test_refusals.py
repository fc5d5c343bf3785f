"""What `migrate` refuses, and that a refusal changes nothing."""

from dataclasses import replace

import asyncpg
import pytest
from tests.support.schema import dump, gadget, kernel, records, releases

from penstock.kernel.errors import ForeignObject, MigrationChanged, MigrationFailed, WrongUsage
from penstock.kernel.schema import migrate
from penstock.kernel.schema.session import Session
from penstock.kernel.schema.verify import verify
from penstock.kernel.sqlfiles import Migration, Product, SqlFile
from penstock.postgres import Cluster


async def _run(url: str, *statements: str) -> None:
    conn: Session = await asyncpg.connect(url)
    try:
        for statement in statements:
            await conn.execute(statement)
    finally:
        await conn.close()


def _with_stage(product: Product, stage: str, text: str) -> Product:
    file = SqlFile(f"{stage}.sql", text)
    return replace(product, stages={**product.stages, stage: (file,)})


def _text(product: Product, stage: str) -> str:
    return "".join(file.text for file in product.stages[stage])


@pytest.mark.parametrize(
    ("existing", "told"),
    [
        ("create table gadget.part (part_no text, price numeric)", "part_no text, price numeric"),
        ("create view gadget.names as select 1 as one", "a view of postgres is there"),
        ("create view gadget.part as select 1 as one", "ours is a table"),
        ("create type gadget.colour as enum ('blue')", "a type of postgres is there"),
        (
            "create function gadget.label() returns text language sql as 'select ''theirs'''",
            "a function of postgres is there",
        ),
    ],
)
async def test_a_foreign_object_is_refused_with_the_difference(
    cluster: Cluster, empty_url: str, existing: str, told: str
) -> None:
    await migrate(empty_url, products=[kernel()])
    await _run(empty_url, "create schema gadget", existing)
    before = dump(cluster, empty_url)
    with pytest.raises(ForeignObject) as caught:
        await migrate(empty_url, products=releases("first"))
    assert told in caught.value.explain()
    assert dump(cluster, empty_url) == before


async def test_a_foreign_table_shows_the_expected_columns(empty_url: str) -> None:
    await _run(empty_url, "create schema gadget", "create table gadget.part (part_no text)")
    with pytest.raises(ForeignObject) as caught:
        await migrate(empty_url, products=releases("first"))
    assert "expected  id bigint, name text, colour gadget.colour" in caught.value.happened


async def test_a_foreign_outbox_in_public_is_refused(empty_url: str) -> None:
    await _run(empty_url, "create table public.outbox (id serial primary key, body text)")
    with pytest.raises(ForeignObject, match=r"public\.outbox"):
        await migrate(empty_url, only="outbox")


async def test_payments_of_before_are_neither_run_over_nor_removed(empty_url: str) -> None:
    await _run(
        empty_url,
        "create type public.outbox_status as enum ('PENDING', 'SENT')",
        "create table public.payment_outbox (id bigint primary key, status public.outbox_status)",
        "insert into public.payment_outbox values (1, 'PENDING')",
        "create view public.supervisor_outbox_status as select id, status from payment_outbox",
    )
    with pytest.raises(ForeignObject, match=r"public\.supervisor_outbox_status"):
        await migrate(empty_url, only="payments")
    await _run(empty_url, "drop view public.supervisor_outbox_status")
    await migrate(empty_url, only="payments")
    conn: Session = await asyncpg.connect(empty_url)
    try:
        left = await conn.fetchval("select count(*) from public.payment_outbox")
        view = await conn.fetchval("select count(*) from public.supervisor_outbox_status")
    finally:
        await conn.close()
    assert (left, view) == (1, 0), "money that was not dispatched is nobody's to drop"


async def test_an_edited_migration_is_refused(empty_url: str) -> None:
    second = gadget("second")
    await migrate(empty_url, products=[kernel(), second])
    first, *rest = second.migrations
    edited = Migration(first.version, first.name, SqlFile(first.file.path, first.file.text + " "))
    changed = replace(second, migrations=(edited, *rest))
    with pytest.raises(MigrationChanged, match="0002_expand_weight"):
        await migrate(empty_url, products=[kernel(), changed])
    findings = await verify(empty_url, products=[kernel(), changed])
    assert [f.object for f in findings] == ["file gadget/migrations/0002_expand_weight.sql"]


@pytest.mark.parametrize("stage", ["tables", "types"])
async def test_changed_tables_without_a_migration_are_refused(
    cluster: Cluster, empty_url: str, stage: str
) -> None:
    first = gadget("first")
    await migrate(empty_url, products=[kernel(), first])
    before = dump(cluster, empty_url)
    text = _text(first, stage).replace("'red'", "'crimson'")
    with pytest.raises(MigrationChanged, match=f"{stage}.sql changed") as caught:
        await migrate(empty_url, products=[kernel(), _with_stage(first, stage, text)])
    assert "0002_expand" in caught.value.todo
    assert dump(cluster, empty_url) == before


async def test_a_comment_in_a_table_file_is_no_change(empty_url: str) -> None:
    first = gadget("first")
    await migrate(empty_url, products=[kernel(), first])
    commented = _with_stage(first, "tables", "-- more words\n" + _text(first, "tables"))
    report = await migrate(empty_url, products=[kernel(), commented])
    assert not report.changed


async def test_changed_functions_are_applied_at_the_same_version(empty_url: str) -> None:
    first = gadget("first")
    await migrate(empty_url, products=[kernel(), first])
    text = _text(first, "functions").replace("'part'", "'piece'")
    newer = _with_stage(first, "functions", text)
    report = await migrate(empty_url, products=[kernel(), newer])
    assert [p.action for p in report.products] == ["nothing", "refresh"]
    assert await verify(empty_url, products=[kernel(), newer]) == ()
    conn: Session = await asyncpg.connect(empty_url)
    try:
        assert await conn.fetchval("select gadget.label()") == "piece"
    finally:
        await conn.close()


@pytest.mark.parametrize(
    "body", ["select no_such_column from gadget.part", "select 1 from gadget.nowhere"]
)
async def test_a_broken_function_body_fails_the_installation(
    cluster: Cluster, empty_url: str, body: str
) -> None:
    first = gadget("first")
    broken = f"create function gadget.broken() returns bigint language sql as $$ {body} $$;"
    await migrate(empty_url, products=[kernel()])
    before = dump(cluster, empty_url), await records(empty_url)
    text = _text(first, "functions") + broken
    with pytest.raises(MigrationFailed, match="function bodies"):
        await migrate(empty_url, products=[kernel(), _with_stage(first, "functions", text)])
    assert (dump(cluster, empty_url), await records(empty_url)) == before


async def test_an_unknown_product_is_wrong_usage(empty_url: str) -> None:
    with pytest.raises(WrongUsage, match="kernel"):
        await migrate(empty_url, only="nonsense")
