"""`penstock dev`: an embedded database, the schema, the worker and the server, in one command."""

import asyncio
import hashlib
import os
import re
import shlex
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from penstock.cli.application import load_application
from penstock.cli.invocation import Invocation
from penstock.kernel.schema import LEDGER, available_products, migrate, select_products
from penstock.kernel.settings import Settings
from penstock.outbox import destinations

WATCH_S = 0.5
_IGNORED = re.compile(r"(^|/)(\.|__pycache__|node_modules)")


@click.command()
@click.option("--reload", "reloading", is_flag=True, help="Start again when a .py file changes.")
@click.option("--port", type=click.IntRange(0, 65535), help="Port of the HTTP interface.")
@click.pass_obj
def dev(invocation: Invocation, *, reloading: bool, port: int | None) -> int:
    """Embedded database, schema, worker and server, for development.

    With PENSTOCK_DATABASE_URL or --database that database is used and none is started.
    """
    # Without this a SIGTERM would end the process and leave the databases running.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with ExitStack() as stack:
        started = stack.enter_context(_databases(invocation))
        for setting, cluster in started.items():
            invocation.overrides[setting] = cluster.url()
        invocation.__dict__.pop("settings", None)  # read again, with the addresses
        _migrate(invocation)
        _tell(invocation, started)
        if reloading:
            return _reload(invocation, port)
        return _serve(invocation, port)


@contextmanager
def _databases(invocation: Invocation) -> Iterator[dict[str, Any]]:
    """Clusters of this project by the settings they stand for, kept between runs."""
    settings = invocation.settings
    if settings.database_url is not None:
        yield {}
        return
    postgres = import_module("penstock.postgres")
    started: dict[str, Any] = {}
    with ExitStack() as stack:
        wanted = {"database_url": "engine"}
        if any(product.name == "ledger" for product in available_products()):
            wanted["ledger_url"] = "ledger"
        for setting, name in wanted.items():
            cluster = postgres.named_cluster(f"{_project()}-{name}", state_dir=_state_dir(settings))
            started[setting] = stack.enter_context(cluster)
        yield started


def _tell(invocation: Invocation, started: Mapping[str, Any]) -> None:
    """Where the databases are, once they can be used: whoever reads an address may open it."""
    for cluster in started.values():
        name = cluster.name.rpartition("-")[2]
        invocation.out.say(f"{name:<8} {cluster.url()}")
    places = " ".join(shlex.quote(str(cluster.data_dir)) for cluster in started.values())
    if places:
        invocation.out.say(f"kept for the next time; to begin anew: rm -r {places}")


def _project() -> str:
    """A name for this directory's clusters, so that two projects never share a database."""
    return "dev-" + hashlib.sha256(str(Path.cwd()).encode()).hexdigest()[:8]


def _state_dir(settings: Settings) -> Path | None:
    if settings.source_of("state_dir") == "default":
        return None
    return settings.state_dir.absolute() / "clusters"


def _migrate(invocation: Invocation) -> None:
    settings = invocation.settings
    asyncio.run(migrate(settings.require_database()))
    if settings.ledger_url is not None:
        asyncio.run(migrate(settings.require_ledger(), products=select_products(LEDGER)))


def _serve(invocation: Invocation, port: int | None) -> int:
    """Server and worker in this process; the worker alone where the server is not installed."""
    worker = import_module("penstock.cli.worker")
    application = load_application(invocation)
    handles = bool(application.outbox.registrations) or invocation.run(_delivers(invocation))
    # The bridge of intake needs no handlers of the user's, only the second database.
    works = handles or application.settings.ledger_url is not None
    context = click.get_current_context()
    if find_spec("uvicorn") is None or find_spec("starlette") is None:
        invocation.out.say("no HTTP interface: pip install 'penstock[server]'")
        options = {"only": (), "processes": 1, "parent_pid": None}
        empty = {"concurrency": None, "drain_s": None, "health_port": None}
        return int(context.invoke(worker.work, **options, **empty))
    if not handles:
        invocation.out.say("no handlers: name an application with --app to run its worker")
    return int(context.invoke(worker.serve, with_workers=works, host=None, port=port))


async def _delivers(invocation: Invocation) -> bool:
    """Whether some destination takes events: that needs no handlers of the user's either."""
    async with invocation.connection() as conn:
        return await destinations.installed(conn) and bool(await destinations.serving(conn))


def _reload(invocation: Invocation, port: int | None) -> int:
    """Run `penstock dev` as a child and start it again whenever a source file changes."""
    arguments = ["dev"]
    if invocation.app:
        arguments += ["--app", invocation.app]
    if port is not None:
        arguments += ["--port", str(port)]
    addresses = {
        "PENSTOCK_DATABASE_URL": invocation.settings.require_database(),
        "PENSTOCK_LEDGER_URL": (
            invocation.settings.require_ledger() if invocation.settings.ledger_url else ""
        ),
    }
    return asyncio.run(_run_again(arguments, {**os.environ, **addresses}))


async def _run_again(arguments: list[str], environment: dict[str, str]) -> int:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stopping.set)
    while not stopping.is_set():
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "penstock", *arguments, env=environment
        )
        await _until_changed(Path.cwd(), stopping)
        if process.returncode is None:
            process.terminate()
        await process.wait()
    return 0


async def _until_changed(root: Path, stopping: asyncio.Event) -> None:
    before = changes(root)
    while not stopping.is_set():
        try:
            await asyncio.wait_for(stopping.wait(), WATCH_S)
        except TimeoutError:
            if changes(root) != before:
                return


def changes(root: Path) -> dict[Path, int]:
    """When each source file below a directory was last written."""
    found: dict[Path, int] = {}
    for directory, names, files in os.walk(root):
        names[:] = [name for name in names if not _IGNORED.search(name) and name != ".venv"]
        for file in files:
            if file.endswith(".py"):
                path = Path(directory, file)
                found[path] = path.stat().st_mtime_ns
    return found
