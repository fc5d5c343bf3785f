"""The version handshake: code of release N runs on the schema of N and N+1, and on no other."""

from collections.abc import Iterable, Mapping

from penstock.kernel.database import call
from penstock.kernel.errors import SchemaMissing, SchemaTooNew
from penstock.kernel.queue import Connection
from penstock.kernel.schema.products import ENGINE, KERNEL, select_products
from penstock.kernel.sqlfiles import Product

_VERSIONS = "select product, max(version) as version from penstock.migration group by product"


async def installed_products(conn: Connection) -> frozenset[str]:
    """The names of the products that the database has, in whatever version."""
    return frozenset(await _versions(conn))


async def check_schema(conn: Connection, products: Iterable[Product]) -> None:
    """Raise SchemaMissing or SchemaTooNew, naming the command to run; one cheap query."""
    _compare(await _versions(conn), products)


async def check_installed(conn: Connection) -> None:
    """The same for the kernel and every product of this code that the database has."""
    versions = await _versions(conn)
    wanted = select_products(ENGINE)
    _compare(versions, [one for one in wanted if one.name == KERNEL or one.name in versions])


async def _versions(conn: Connection) -> dict[str, int]:
    return {row["product"]: int(row["version"]) for row in await call(conn, _VERSIONS)}


def _compare(installed: Mapping[str, int], products: Iterable[Product]) -> None:
    for product in products:
        found = installed.get(product.name, 0)
        if found < product.version:
            state = f"is at version {found}" if found else "is not installed"
            raise SchemaMissing(
                f"{product.name} {state} in the database, this release needs {product.version}",
                todo=f"run `penstock migrate --only {product.name}`, then start again.",
            )
        if found > product.version + 1:
            raise SchemaTooNew(
                f"{product.name} is at version {found} in the database, this release knows "
                f"{product.version} and tolerates {product.version + 1}"
            )
