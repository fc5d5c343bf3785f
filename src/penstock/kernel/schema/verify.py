"""Compares a live database with what was recorded at the end of its migration, and with us."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from penstock.kernel.database import translated
from penstock.kernel.errors import SchemaMissing
from penstock.kernel.schema import snapshot
from penstock.kernel.schema.plan import Recorded
from penstock.kernel.schema.products import KERNEL, available_products
from penstock.kernel.schema.session import session
from penstock.kernel.sqlfiles import STAGES, Product

State = Literal["missing", "changed", "added", "outdated"]
# Positions of new queues come as sequences at run time; an extra one is no drift.
_MAY_APPEAR = frozenset({"sequence"})


@dataclass(frozen=True, slots=True)
class Finding:
    """One difference: the object, what is wrong with it, and both definitions where they exist."""

    product: str
    object: str
    kind: str
    state: State
    expected: str = ""
    found: str = ""


_OTHER_SERVER = Finding(
    KERNEL,
    "file server",
    "file",
    "outdated",
    "recorded by another major version of Postgres; `penstock migrate` records it anew",
)


async def verify(url: str, *, products: Sequence[Product] | None = None) -> tuple[Finding, ...]:
    """Every difference between the live schema, its record, and this release. Changes nothing."""
    known = tuple(products) if products is not None else available_products()
    async with session(url) as conn:
        with translated():
            async with conn.transaction(readonly=True, isolation="repeatable_read"):
                await conn.execute("set local search_path = pg_catalog, pg_temp")
                state = await snapshot.read_state(conn)
                if KERNEL not in state:
                    raise SchemaMissing("the database holds no schema of Penstock")
                installed = [product for product in known if product.name in state]
                on_record = await snapshot.recorded(conn)
                live = await snapshot.take(conn, installed)
                if await snapshot.by_other_server(conn):
                    return (_OTHER_SERVER,)
    drift = _drift(on_record, live, {product.name for product in installed})
    outdated = (f for product in installed for f in _outdated(product, state[product.name]))
    return tuple(sorted([*drift, *outdated], key=lambda f: (f.product, f.kind, f.object)))


def _drift(
    on_record: snapshot.Snapshot, live: snapshot.Snapshot, products: set[str]
) -> Iterator[Finding]:
    for name in {*on_record, *live}:
        was, is_now = on_record.get(name), live.get(name)
        described = was or is_now
        assert described is not None
        if described.product not in products or was == is_now:
            continue
        if was is None and described.kind in _MAY_APPEAR:
            continue
        yield Finding(
            described.product,
            name,
            described.kind,
            "added" if was is None else "missing" if is_now is None else "changed",
            was.definition if was else "",
            is_now.definition if is_now else "",
        )


def _outdated(product: Product, recorded: Recorded) -> Iterator[Finding]:
    """Where the database was migrated from other text than this release holds."""
    for migration in product.migrations:
        applied = recorded.checksums.get(migration.version)
        if applied != migration.checksum:
            yield _file_finding(
                product, migration.file.path, applied=applied or "", expected=migration.checksum
            )
    if recorded.version > product.version:
        # A newer release has been here: its definitions are none of our business.
        return
    for stage in STAGES:
        applied = recorded.stages.get(stage)
        if applied != product.digests[stage]:
            yield _file_finding(
                product, stage, applied=applied or "", expected=product.digests[stage]
            )


def _file_finding(product: Product, path: str, *, applied: str, expected: str) -> Finding:
    return Finding(
        product.name, f"file {product.name}/{path}", "file", "outdated", expected, applied
    )
