"""Snapshots of the live catalog: taken, recorded at the end of a migration, compared by `verify`.

Only what a migration itself changed is recorded anew. What had drifted before and was left alone
stays on record as it was, so that an upgrade cannot silently bless a manual change.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TypeAlias

from penstock.kernel.schema.plan import Recorded
from penstock.kernel.schema.session import Session
from penstock.kernel.sqlfiles import STAGES, Product

# Rows that hold the digests of a product's own files, beside those of live objects.
FILE = "file"
# Another major version prints the same definition differently, so the record names its version.
RECORD_SERVER = """
insert into penstock.catalog (object, kind, product, definition, digest)
values ('file server', 'file', '', '',
        (current_setting('server_version_num')::integer / 10000)::text)
on conflict (object) do update set digest = excluded.digest
"""
_OTHER_SERVER = """
select exists (select from penstock.catalog
               where object = 'file server'
                 and digest <> (current_setting('server_version_num')::integer / 10000)::text)
"""
_RELATIONS = frozenset({"table", "view", "sequence"})
_TYPES = frozenset({"type", "domain"})
_FUNCTIONS = frozenset({"function", "procedure"})


@dataclass(frozen=True, slots=True)
class Described:
    """One live or recorded object; `object` starts with its kind."""

    object: str
    kind: str
    product: str
    definition: str
    digest: str


Snapshot: TypeAlias = Mapping[str, Described]


@cache
def snapshot_query() -> str:
    """The query over the catalog; its one parameter is `scope()`."""
    return files(__package__).joinpath("snapshot.sql").read_text("utf-8")


def scope(products: Iterable[Product]) -> str:
    """What the products create, as the JSON text that the query takes."""
    wanted = [
        {"product": product.name, **described}
        for product in products
        for described in _wanted(product)
    ]
    return json.dumps(sorted(wanted, key=lambda row: sorted(row.items())))


def _wanted(product: Product) -> list[dict[str, str]]:
    found = []
    for creation, _ in product.creations:
        if creation.kind == "schema":
            found.append({"kind": "schema", "name": creation.name})
            continue
        for kind, kinds in (
            ("relation", _RELATIONS),
            ("type", _TYPES),
            ("function", _FUNCTIONS),
        ):
            if creation.kind in kinds:
                found.append({"kind": kind, "schema": creation.schema, "name": creation.name})
    return [dict(pairs) for pairs in sorted({tuple(row.items()) for row in found})]


async def take(conn: Session, products: Iterable[Product]) -> Snapshot:
    """Describe the live catalog. Needs the search path of a migration's transaction."""
    rows = await conn.fetch(snapshot_query(), scope(products))
    return {row["object"]: Described(**dict(row)) for row in rows}


async def recorded(conn: Session) -> Snapshot:
    """What was recorded at the end of the last migration, without the rows about files."""
    rows = await conn.fetch(
        "select object, kind, product, definition, digest from penstock.catalog where kind <> $1",
        FILE,
    )
    return {row["object"]: Described(**dict(row)) for row in rows}


def merge(
    before: Snapshot, after: Snapshot, on_record: Snapshot, *, forced: Collection[str] = ()
) -> Snapshot:
    """What to record: the new state where the migration changed it, the old record elsewhere."""
    merged = {}
    for name in {*before, *after, *on_record}:
        untouched = before.get(name) == after.get(name) and name not in forced
        kept = on_record.get(name) if untouched else after.get(name)
        if kept is not None:
            merged[name] = kept
    return merged


async def by_other_server(conn: Session) -> bool:
    """Whether the record was made by another major version of the server."""
    return bool(await conn.fetchval(_OTHER_SERVER))


async def record(conn: Session, snapshot: Snapshot) -> None:
    """Replace the record of live objects."""
    await conn.execute(RECORD_SERVER)
    await conn.execute("delete from penstock.catalog where kind <> $1", FILE)
    rows = [(d.object, d.kind, d.product, d.definition, d.digest) for d in snapshot.values()]
    await conn.execute(
        "insert into penstock.catalog (object, kind, product, definition, digest) "
        "select * from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[])",
        *(list(column) for column in zip(*rows, strict=True)),
    )


def file_rows(product: Product) -> list[tuple[str, str]]:
    """The catalog rows about a product's files: object and digest."""
    return [(f"{FILE} {product.name}/{stage}", product.digests[stage]) for stage in STAGES]


async def record_files(conn: Session, product: Product) -> None:
    """Replace the digests of a product's files, and its version-1 checksum."""
    await conn.execute(
        "delete from penstock.catalog where kind = $1 and product = $2", FILE, product.name
    )
    rows = file_rows(product)
    await conn.execute(
        "insert into penstock.catalog (object, kind, product, definition, digest) "
        "select object, $2, $3, $4, digest from unnest($1::text[], $5::text[]) r (object, digest)",
        [name for name, _ in rows],
        FILE,
        product.name,
        str(product.version),
        [value for _, value in rows],
    )


async def read_state(conn: Session) -> dict[str, Recorded]:
    """What the database records of every product; empty when nothing is installed."""
    if await conn.fetchval("select to_regclass('penstock.migration') is null"):
        return {}
    state: dict[str, Recorded] = {}
    for row in await conn.fetch("select product, version, checksum from penstock.migration"):
        state.setdefault(row["product"], Recorded()).checksums[row["version"]] = row["checksum"]
    files_known = await conn.fetch(
        "select product, object, digest, definition from penstock.catalog where kind = $1", FILE
    )
    for product, known in state.items():
        mine = [row for row in files_known if row["product"] == product]
        stages = {row["object"].rpartition("/")[2]: row["digest"] for row in mine}
        version = max((int(row["definition"]) for row in mine), default=0)
        state[product] = Recorded(known.checksums, stages, version)
    return state
