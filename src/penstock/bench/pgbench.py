"""Runs scripts of ours under pgbench, so that no client of ours stands in what is measured."""

import asyncio
import re
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.resources import as_file, files

from penstock.kernel.errors import PostgresFailed
from penstock.postgres import Cluster

_TPS = re.compile(r"^tps = ([\d.]+)", re.MULTILINE)
_GRACE_S = 120.0
JOBS_MAX = 2


@dataclass(frozen=True, slots=True)
class Script:
    """A script beside this module, with its pool and how many rows one call writes."""

    name: str
    pool: str
    size: int = 1


async def run_for(
    cluster: Cluster, database: str, script: Script, *, clients: int, seconds: float
) -> float:
    """Rows per second over so many seconds, whole ones, at least one."""
    whole = max(1, round(seconds))
    return await _run(cluster, database, script, clients=clients, bound=("-T", whole), due_s=whole)


async def run_calls(
    cluster: Cluster, database: str, script: Script, *, clients: int, calls: int
) -> float:
    """Rows per second over so many calls of each client."""
    return await _run(cluster, database, script, clients=clients, bound=("-t", calls), due_s=0)


async def _run(
    cluster: Cluster,
    database: str,
    script: Script,
    *,
    clients: int,
    bound: tuple[str, int],
    due_s: float,
) -> float:
    with ExitStack() as stack:
        source = files(__package__).joinpath("sql", f"{script.name}.pgbench")
        path = stack.enter_context(as_file(source))
        printed = await asyncio.to_thread(
            cluster.run,
            "pgbench",
            *("--no-vacuum", "--protocol=prepared", f"--file={path}"),
            *("-D", f"pool={script.pool}", "-D", f"size={script.size}"),
            *("-c", str(clients), "-j", str(min(clients, JOBS_MAX))),
            *(bound[0], str(bound[1])),
            database=database,
            timeout_s=due_s + _GRACE_S,
        )
    found = _TPS.search(printed)
    if found is None:
        raise PostgresFailed(f"pgbench printed no rate: {printed}")
    return float(found.group(1)) * script.size
