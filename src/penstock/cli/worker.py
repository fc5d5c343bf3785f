"""`penstock work`, `run`, `serve` and `dev`: the commands that keep running."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict
from importlib import import_module
from typing import Any, TypeVar

import click

from penstock.application import Penstock
from penstock.cli.application import load_application
from penstock.cli.dev import dev
from penstock.cli.invocation import Invocation
from penstock.cli.listening import bound, said_plainly
from penstock.cli.processes import run_processes, watch_parent
from penstock.kernel.errors import WrongUsage
from penstock.kernel.logs import capture_standard_logging, log_subscriber, make_logger
from penstock.kernel.loops import rare_collections, run_fast
from penstock.kernel.report import WorkReport

__all__ = ["dev", "run", "serve", "work"]

T = TypeVar("T")
KILL_GRACE_S = 10.0
FORCED = 130
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
DATABASE_VARIABLE = "PENSTOCK_DATABASE_URL"


@click.command()
@click.option("--only", multiple=True, metavar="QUEUE", help="Work only this queue; repeatable.")
@click.option("--processes", type=click.IntRange(1, 64), default=1, show_default=True)
@click.option("--concurrency", type=click.IntRange(1, 1000), help="Most handlers at once.")
@click.option("--drain-s", type=click.FloatRange(0, 3600), help="Time for handlers to end.")
@click.option("--health-port", type=click.IntRange(0, 65535), help="Serve /healthz and /metrics.")
@click.option("--parent-pid", type=int, hidden=True, help="Stop when this process is gone.")
@click.pass_obj
def work(invocation: Invocation, /, **options: Any) -> int:
    """Run workers until SIGTERM or SIGINT; running handlers may end, the rest is given back."""
    application = load_application(
        invocation,
        concurrency=options["concurrency"],
        drain_s=options["drain_s"],
        health_port=options["health_port"],
    )
    if options["processes"] > 1:
        grace_s = application.settings.drain_s + KILL_GRACE_S
        # An address holds a password, and everybody can read a command line.
        url = application.settings.require_database()
        return asyncio.run(
            run_processes(
                _child_arguments(invocation, options),
                options["processes"],
                grace_s=grace_s,
                environment={**os.environ, DATABASE_VARIABLE: url},
            )
        )
    _observe(application)
    report = run_fast(_work(application, options["only"], options["parent_pid"]))
    invocation.out.say(_sentence(report))
    return 0


@click.command()
@click.argument("queue")
@click.option("--once", is_flag=True, help="Stop when the queue is empty; always needed.")
@click.option("--limit", type=click.IntRange(1), help="Most items to take.")
@click.option("--deadline", type=click.FloatRange(0.1), default=50.0, show_default=True)
@click.pass_obj
def run(
    invocation: Invocation, *, queue: str, once: bool, limit: int | None, deadline: float
) -> int:
    """Work QUEUE off once: until it is empty, or the limit or the deadline is reached."""
    if not once:
        raise WrongUsage(
            "`penstock run` works a queue off once and says so",
            todo=f"add --once, or use `penstock work --only {queue}` to keep running.",
        )
    application = load_application(invocation)
    _observe(application)

    async def act() -> WorkReport:
        reports = []  # stays empty when a signal comes before the work
        async with _signals(application), application:
            reports.append(await application.run_once(queue, deadline_s=deadline, limit=limit))
        return sum(reports, WorkReport())

    report = run_fast(act())
    if invocation.as_json:
        invocation.out.data(report)
    else:
        invocation.out.record(asdict(report))
        if queue == "outbox":
            invocation.out.say(f"Delivered {report.finished} of {report.claimed} events")
    return 0


@click.command()
@click.option("--with-workers", is_flag=True, help="Handle items in the same process.")
@click.option("--host", help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), help="Port to listen on; 0: any free one.")
@click.pass_obj
def serve(invocation: Invocation, *, with_workers: bool, host: str | None, port: int | None) -> int:
    """Serve the HTTP interface until SIGTERM or SIGINT."""
    application = load_application(invocation, host=host, port=port)
    application.settings.require_database()
    _observe(application)
    uvicorn = import_module("uvicorn")
    mount = import_module("penstock.api.mount")
    hot = import_module("penstock.api.hot")
    settings = application.settings
    config = uvicorn.Config(
        mount.Mounted(application, work=with_workers),
        host=settings.host,
        port=settings.port,
        http=hot.HotProtocol,
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=int(settings.drain_s),
    )
    server = uvicorn.Server(config)
    with bound(settings.host, settings.port) as sockets:
        taken = sockets[0].getsockname()[1]  # where 0 was asked for, this is the one that was free
        invocation.out.say(f"serving on http://{settings.host}:{taken}")
        with rare_collections(), _raised_again():
            server.run(sockets=sockets)
    return 0 if server.started else 1


@contextmanager
def _raised_again() -> Iterator[None]:
    """uvicorn raises its stop signal once more when it has shut down; here it is done with."""
    before = {name: signal.signal(name, lambda *_: None) for name in STOP_SIGNALS}
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)


async def _work(application: Penstock, only: Any, parent: int | None) -> WorkReport:
    reports = []  # stays empty when a signal comes before the work
    async with _signals(application) as stop, application, _health(application):
        watch = asyncio.create_task(watch_parent(parent, stop)) if parent else None
        try:
            reports.append(await application.work(only=only))
        finally:
            if watch is not None:
                watch.cancel()
    return sum(reports, WorkReport())


@asynccontextmanager
async def _signals(application: Penstock) -> AsyncIterator[Callable[[], None]]:
    """The first signal drains; the second ends the process, which loses nothing either.

    A signal that comes before there is anything to drain ends the block.
    """
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    seen: list[bool] = []

    def stop() -> None:
        if seen:
            os._exit(FORCED)
        seen.append(True)
        if not application.stop() and task is not None:
            task.cancel()

    for name in STOP_SIGNALS:
        loop.add_signal_handler(name, stop)
    try:
        yield stop
    except asyncio.CancelledError:
        if not seen or task is None or task.uncancel():
            raise
    finally:
        for name in STOP_SIGNALS:
            loop.remove_signal_handler(name)


@asynccontextmanager
async def _health(application: Penstock) -> AsyncIterator[None]:
    settings = application.settings
    if settings.health_port is None:
        yield
        return
    health = import_module("penstock.api.health")
    mount = import_module("penstock.api.mount")
    server = health.HealthServer(
        mount.health_of(application), host=settings.health_host, port=settings.health_port
    )
    with said_plainly(settings.health_host, settings.health_port, option="--health-port"):
        await server.start()
    try:
        yield
    finally:
        await server.stop()


def _observe(application: Penstock) -> None:
    capture_standard_logging(application.settings)
    application.subscribe(log_subscriber(make_logger(application.settings)))


def _child_arguments(invocation: Invocation, options: dict[str, Any]) -> Any:
    def arguments(number: int) -> list[str]:
        made = ["work", "--parent-pid", str(os.getpid())]
        made += ["--database", f"env:{DATABASE_VARIABLE}"]
        if invocation.app:
            made += ["--app", invocation.app]
        if invocation.config:
            made += ["--config", str(invocation.config)]
        for queue in options["only"]:
            made += ["--only", queue]
        for name in ("concurrency", "drain_s"):
            if options[name] is not None:
                made += [f"--{name.replace('_', '-')}", str(options[name])]
        if options["health_port"]:
            made += ["--health-port", str(options["health_port"] + number)]
        return [*made, *(["--quiet"] if invocation.quiet else [])]

    return arguments


def _sentence(report: WorkReport) -> str:
    return "stopped: " + ", ".join(f"{count} {name}" for name, count in asdict(report).items())
