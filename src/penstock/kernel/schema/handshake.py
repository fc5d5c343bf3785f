"""The version handshake: code of release N runs on the schema of N and N+1, and on no other."""

from collections.abc import Iterable

from penstock.kernel.database import call
from penstock.kernel.errors import SchemaMissing, SchemaTooNew
from penstock.kernel.queue import Connection
from penstock.kernel.sqlfiles import Product

_VERSIONS = "select product, max(version) as version from penstock.migration group by product"


async def installed_products(conn: Connection) -> frozenset[str]:
    """The names of the products that the database has, in whatever version."""
    return frozenset(row["product"] for row in await call(conn, _VERSIONS))


async def check_schema(conn: Connection, products: Iterable[Product]) -> None:
    """Raise SchemaMissing or SchemaTooNew, naming the command to run; one cheap query."""
    rows = await call(conn, _VERSIONS)
    installed = {row["product"]: int(row["version"]) for row in rows}
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
