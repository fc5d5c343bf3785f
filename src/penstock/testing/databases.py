"""Databases for tests: one throwaway server per test process, one migrated copy per test."""

import asyncio
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count

from penstock.kernel.schema import migrate
from penstock.postgres import Cluster, throwaway_cluster

TEMPLATE = "penstock_template"
_numbers = count(1)

Setup = Callable[[str], object]


@contextmanager
def template_cluster(setup: Setup | None = None) -> Iterator[Cluster]:
    """A running server with a migrated database to copy; `setup` adds the application's tables."""
    with throwaway_cluster() as cluster:
        url = cluster.create_database(TEMPLATE)
        # A loop may be running in this thread, so the migration gets a thread of its own.
        with ThreadPoolExecutor(1) as thread:
            thread.submit(lambda: asyncio.run(migrate(url))).result()
        if setup is not None:
            setup(url)
        yield cluster


@contextmanager
def copied(cluster: Cluster) -> Iterator[str]:
    """The address of a fresh copy of the migrated database, dropped at the end."""
    name = f"test_{os.getpid()}_{next(_numbers)}"
    yield cluster.create_database(name, TEMPLATE)
    cluster.drop_database(name)
