"""What tests of the schema share: a product of their own in three releases, and plain dumps."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg

from penstock.kernel.schema import select_products
from penstock.kernel.sqlfiles import Product, load_product
from penstock.postgres import Cluster

_GADGET = Path(__file__).parents[1] / "upgrade" / "gadget"
_RESTRICT = re.compile(r"^\\(un)?restrict .*\n", re.MULTILINE)
_COMMAND = "from penstock.cli.main import main; main()"


def kernel() -> Product:
    """The kernel alone."""
    return select_products(only="kernel")[0]


def gadget(release: str) -> Product:
    """The test product as of its `first` (version 1), `second` (3) or `third` (4) release."""
    return load_product("gadget", _GADGET / release)


def releases(release: str) -> tuple[Product, ...]:
    """The kernel and the test product."""
    return kernel(), gadget(release)


def database_of(url: str) -> str:
    """The name of the database in a URL."""
    return urlsplit(url).path.removeprefix("/")


def dump(cluster: Cluster, url: str) -> str:
    """Everything but data, as `pg_dump` sees it: an opinion independent of ours."""
    text = cluster.run("pg_dump", "--schema-only", database=database_of(url))
    # Newer versions guard the dump with a random word.
    return _RESTRICT.sub("", text)


async def records(url: str) -> tuple[list[tuple[object, ...]], list[tuple[object, ...]]]:
    """The recorded versions and the recorded catalog, without times."""
    conn: asyncpg.Connection[asyncpg.Record] = await asyncpg.connect(url)
    try:
        versions = await conn.fetch(
            "select product, version, name, checksum from penstock.migration order by 1, 2"
        )
        catalog = await conn.fetch(
            "select object, kind, product, digest, definition from penstock.catalog order by 1"
        )
    finally:
        await conn.close()
    return [tuple(row) for row in versions], [tuple(row) for row in catalog]


@dataclass(frozen=True, slots=True)
class Ran:
    """What a command answered."""

    code: int
    out: str
    err: str


def penstock(*arguments: str, url: str = "", environ: Mapping[str, str] | None = None) -> Ran:
    """Run the `penstock` program in a process of its own."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PENSTOCK_")}
    given = {"PENSTOCK_DATABASE_URL": url} if url else {}
    done = subprocess.run(
        [sys.executable, "-c", _COMMAND, *arguments],
        env={**kept, **given, **(environ or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr)
