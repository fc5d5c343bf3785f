"""The application object: one per process, built at import time, opened when work begins.

It holds what the products share and knows which products there are. A product joins by being an
attribute and a part of `_parts`; nothing else here names it.
"""

import asyncio
import importlib
import logging
import os
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar

from penstock.inbox.public import Inbox
from penstock.intake.public import Intake
from penstock.kernel.database import Database
from penstock.kernel.errors import BadSetting, NotFound, NotOpened, WrongUsage
from penstock.kernel.events import Events, Observation, Subscriber
from penstock.kernel.handlers import Hook
from penstock.kernel.injection import Resources
from penstock.kernel.lending import Lending, Working
from penstock.kernel.limits import Limits
from penstock.kernel.report import WorkReport
from penstock.kernel.scheduler import Job
from penstock.kernel.settings import TABLE, Settings, load_settings, with_values
from penstock.kernel.tx import Tx
from penstock.kernel.worker import Assignment, Worker
from penstock.outbox.topics import Outbox
from penstock.payments.public import Payments

if TYPE_CHECKING:
    from starlette.types import ASGIApp

_log = logging.getLogger("penstock.application")

R = TypeVar("R")
QueueName: TypeAlias = Literal["intake", "outbox", "payments", "inbox"]


class Penstock:
    """The products of one database. Building it opens nothing; it is safe at import time.

    `publish` and `finish` work on the user's own connection at any time. `work`, `transaction` and
    `asgi` need `async with ps:` or `lifespan=ps.lifespan()`.
    """

    outbox: Outbox
    intake: Intake
    inbox: Inbox
    payments: Payments

    def __init__(
        self,
        database: str | None = None,
        *,
        ledger: str | None = None,
        settings: Settings | None = None,
    ) -> None:
        given = {"database_url": database, "ledger_url": ledger}
        named = {name: _address(name, url) for name, url in given.items() if url is not None}
        self._settings = with_values(settings or Settings(), **named)
        self.resources = Resources()
        self.hooks: list[Hook] = []
        self._lending: Lending | None = None
        self._threads: ThreadPoolExecutor | None = None
        self._workers: list[Worker] = []
        self._depth = 0
        self.events = Events()
        self.outbox = Outbox(self.resources, self._opened_database)
        self.intake = Intake(lambda: self.lending)
        self.inbox = Inbox(self.resources)
        self.payments = Payments()

    @classmethod
    def from_env(cls) -> "Penstock":
        """The application that `PENSTOCK_*` and penstock.toml describe; starts no database."""
        return cls(settings=load_settings(os.environ))

    @property
    def settings(self) -> Settings:
        """The settings it runs by."""
        return self._settings

    def use(self, settings: Settings) -> None:
        """Replace the settings, before opening; for the command line and for tests."""
        if self._lending is not None:
            raise WrongUsage("the settings cannot change while the object is open")
        self._settings = settings

    def subscribe(self, subscriber: Subscriber) -> None:
        """Let a function see every observation: claims, outcomes, lost leases."""
        self.events.subscribe(subscriber)

    @property
    def is_open(self) -> bool:
        """Whether `async with` or the lifespan has opened it."""
        return self._lending is not None

    async def __aenter__(self) -> "Penstock":
        if self._depth == 0:
            await self._open()
        self._depth += 1
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._depth -= 1
        if self._depth == 0:
            await self._close()

    async def _open(self) -> None:
        settings = self._settings
        database = self._database(settings.require_database())
        await database.open()
        try:
            await self.outbox.open(database)
        except BaseException:
            await database.close()
            raise
        ledger: Database | None = None
        if settings.ledger_url is not None:
            # Opened by the product that needs it: an outage there must not stop the others.
            ledger = self._database(settings.ledger_url.reveal())
        self._lending = Lending(
            settings=settings,
            database=database,
            resources=self.resources,
            events=self.events,
            threads=self._thread_pool,
            hooks=self.hooks,
            ledger=ledger,
        )

    async def _close(self) -> None:
        lending, self._lending = self._lending, None
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._threads = None
        if lending is not None:
            await self.intake.close()
            await self.inbox.close()
            await lending.database.close()
            if lending.ledger is not None:
                await lending.ledger.close()

    def _database(self, url: str) -> Database:
        return Database(
            url,
            size=max(2, self._settings.pool_size),
            pooler=self._settings.uses_pooler(),
            statement_timeout_s=self._settings.statement_timeout_s,
        )

    def _thread_pool(self) -> Executor:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(
                self._settings.concurrency, thread_name_prefix="penstock-handler"
            )
        return self._threads

    @property
    def lending(self) -> Lending:
        """What is open; raises NotOpened."""
        if self._lending is None:
            raise NotOpened
        return self._lending

    def _opened_database(self) -> Database:
        return self.lending.database

    def lifespan(
        self, *, work: bool | Collection[QueueName] = False
    ) -> Callable[[object], AbstractAsyncContextManager[None]]:
        """The lifespan of a web application: opens and closes; with `work` also handles events."""

        @asynccontextmanager
        async def run(_app: object) -> AsyncIterator[None]:
            async with self:
                if work is False:
                    yield
                    return
                if not self.events.active:
                    self.subscribe(_log_observation)
                only = () if work is True else work
                task = asyncio.create_task(self.work(only=only))
                task.add_done_callback(_log_failure)
                try:
                    yield
                finally:
                    if not self.stop():
                        task.cancel()
                    await asyncio.gather(task, return_exceptions=True)

        return run

    def asgi(self, *, only: Collection[QueueName | Literal["console", "admin"]] = ()) -> "ASGIApp":
        """The HTTP interface, to be mounted or served; without its lifespan it answers 503."""
        mount = importlib.import_module("penstock.api.mount")
        app: ASGIApp = mount.Mounted(self, only=frozenset(only))
        return app

    async def work(
        self,
        *,
        only: Collection[QueueName] = (),
        until_idle: bool = False,
        deadline_s: float | None = None,
    ) -> WorkReport:
        """Handle items until `stop`, until idle, or until the deadline; then drain and report.

        Cancelling it drains too: running handlers may end, what has not started is given back.
        """
        limits = Limits(
            batch=self._settings.batch_size,
            deadline_s=deadline_s,
            until_idle=until_idle,
            drain_s=self._settings.drain_s,
            poll_ms=self._settings.poll_ms,
        )
        async with self._worker(only, limits, listen=not until_idle) as worker:
            return await _until_drained(worker, asyncio.create_task(worker.run()))

    async def run_once(
        self, queue: str, *, deadline_s: float = 50.0, limit: int | None = None
    ) -> WorkReport:
        """Claim from one queue until it is empty, or until limit or deadline; no listening."""
        limits = Limits(
            batch=self._settings.batch_size, drain_s=self._settings.drain_s, until_idle=True
        )
        async with self._worker((queue,), limits, listen=False) as worker:
            run = worker.run_once(queue, deadline_s=deadline_s, limit=limit)
            return await _until_drained(worker, asyncio.create_task(run))

    def ring(self, queue: str) -> bool:
        """Tell a running `work` that a queue may have items; false when none works that queue."""
        return any(worker.ring(queue) for worker in self._workers)

    def stop(self) -> bool:
        """Let every running `work` drain and return; false when none is running."""
        for worker in self._workers:
            worker.stop()
        return bool(self._workers)

    def transaction(self) -> AbstractAsyncContextManager[Tx]:
        """A transaction of the application's own; commits when the block ends well."""
        return self._transaction()

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[Tx]:
        async with self.lending.database.transaction() as conn:
            yield Tx(conn)

    def resource(self, factory: Callable[[], AsyncIterator[R]]) -> Callable[[], AsyncIterator[R]]:
        """Register what handlers may ask for by type; opened once while work runs."""
        self.resources.add(factory)
        return factory

    def around(self, hook: Hook) -> Hook:
        """Register an async generator that runs around every handler: before and after `yield`."""
        self.hooks.append(hook)
        return hook

    @contextmanager
    def override(self, kind: type[R], value: R) -> Iterator[None]:
        """Put a value in the place of a resource while the block runs; for tests."""
        with self.resources.override(kind, value):
            yield

    def parts(self, only: Collection[str] = ()) -> list[Working]:
        """The products that can work here, all or the named ones."""
        every: list[Working] = [self.outbox, self.intake, self.inbox, self.payments]
        unknown = set(only) - {part.queue_name for part in every}
        if unknown:
            raise NotFound(f"no queue named {', '.join(sorted(unknown))} here")
        return [part for part in every if not only or part.queue_name in only]

    @asynccontextmanager
    async def _worker(
        self, only: Collection[str], limits: Limits, *, listen: bool
    ) -> AsyncIterator[Worker]:
        lending = self.lending
        parts = self.parts(only)
        schema = importlib.import_module("penstock.kernel.schema")  # not needed to publish
        async with lending.database.connection() as conn:
            if not only:  # a product that was left out of the migration is left out here
                installed = await schema.installed_products(conn)
                parts = [part for part in parts if part.queue_name in installed] or parts
            products = schema.select_products(("kernel", *(part.queue_name for part in parts)))
            await schema.check_schema(conn, products)
        kinds = [kind for part in parts for kind in part.kinds()]
        async with self.resources.opened(kinds):
            assignments, jobs = await _assignments(parts, lending)
            worker = Worker(
                lending.database,
                assignments,
                events=self.events,
                limits=limits,
                jobs=jobs,
                listen_on=self._listen_on() if listen else None,
            )
            self._workers.append(worker)
            try:
                yield worker
            finally:
                self._workers.remove(worker)

    def _listen_on(self) -> Database | None:
        if self._settings.listen == "off":
            return None
        return self._database(self._settings.listen_url())


async def _assignments(
    parts: Sequence[Working], lending: Lending
) -> tuple[list[Assignment], dict[str, Job]]:
    found: list[Assignment] = []
    jobs: dict[str, Job] = {}
    for part in parts:
        assignment = await part.assignment(lending)
        if assignment is not None:
            found.append(assignment)
            jobs |= part.jobs(lending)
    if all(assignment.idle for assignment in found):
        raise WrongUsage(
            "there is nothing to work on: no handler is registered, no destination has a route",
            todo="import the modules that register handlers where the application is built.",
        )
    return found, jobs


async def _until_drained(worker: Worker, run: "asyncio.Task[WorkReport]") -> WorkReport:
    """The worker's report; a cancellation from outside becomes a drain before it goes on."""
    try:
        return await asyncio.shield(run)
    except asyncio.CancelledError:
        worker.stop()
        await run
        raise


def _log_observation(observation: Observation) -> None:
    """What a worker inside somebody's web application says, in that application's logs."""
    level = logging.getLevelNamesMapping()[observation.level.upper()]
    if _log.isEnabledFor(level):
        _log.log(level, "%s", observation)


def _log_failure(task: "asyncio.Task[WorkReport]") -> None:
    """A worker inside a web application fails where nobody waits for it: say so at once."""
    error = None if task.cancelled() else task.exception()
    if error is not None:
        _log.error("penstock_worker_failed: %s", error)


def _address(name: str, url: str) -> object:
    try:
        return TABLE[name].spec.parse(url)
    except ValueError as error:
        raise BadSetting(f"{name} {error}") from None
