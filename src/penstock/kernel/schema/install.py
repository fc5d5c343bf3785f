"""Installs and upgrades: one transaction per product or migration, under a lock, all or nothing."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence

import asyncpg

from penstock.kernel.database import translate, translated
from penstock.kernel.errors import MigrationFailed, NotPermitted, WrongUsage
from penstock.kernel.failpoints import failpoint
from penstock.kernel.schema import apply, snapshot
from penstock.kernel.schema.concurrent import run_outside
from penstock.kernel.schema.foreign import refuse_foreign
from penstock.kernel.schema.plan import (
    Action,
    MigrationReport,
    Plan,
    ProductReport,
    Recorded,
    make_plan,
)
from penstock.kernel.schema.prerequisites import prerequisites
from penstock.kernel.schema.products import available_products, select_products
from penstock.kernel.schema.roles import OWNER, ROLES, ensure_roles, existing_roles
from penstock.kernel.schema.session import Session, locked, session
from penstock.kernel.sqlfiles import BASELINE, REAPPLIED, STAGES, Migration, Product

_ATTEMPTS = 8
_COLLISIONS = (
    asyncpg.LockNotAvailableError,
    asyncpg.DeadlockDetectedError,
    asyncpg.SerializationError,
)
# What our own SQL says more plainly than "migration failed": a missing extra.
_PASSED_ON = frozenset({"PN004"})
# Objects that applying the definitions again brings back; data-bearing ones are only reported.
_REPAIRED = frozenset({"function", "view", "trigger", "policy", "schema"})

_OWNER_OF_RECORDS = """
select pg_catalog.pg_get_userbyid(c.relowner)::text
from pg_catalog.pg_class c
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where n.nspname = 'penstock' and c.relname = 'migration'
"""
# The login cannot yet act as the owner, or a host's roles have not joined our groups.
_ROLES_INCOMPLETE = """
select not case when current_setting('server_version_num')::integer < 160000
                then pg_catalog.pg_has_role('penstock_owner', 'member')
                else pg_catalog.pg_has_role('penstock_owner', 'set')
                     and pg_catalog.pg_has_role('penstock_owner', 'usage') end
    or exists (select from pg_catalog.pg_roles r
               where r.rolname in ('authenticated', 'service_role')
                 and not pg_catalog.pg_has_role(r.oid, 'penstock_intake_ingest', 'member'))
"""

Progress = Callable[[str], None]


async def migrate(
    url: str,
    *,
    only: str | None = None,
    dry_run: bool = False,
    roles: bool = True,
    products: Sequence[Product] | None = None,
    progress: Progress = lambda _: None,
) -> MigrationReport:
    """Bring a database to the state of this release; a second run does nothing.

    Safe to run at once from several places and to kill anywhere: each product's installation and
    each migration is one transaction under a lock. Without `products`, those of the engine.
    """
    chosen = tuple(products) if products is not None else select_products(only=only)
    started = time.monotonic()
    async with session(url) as conn:
        with translated():
            run = _Run(conn, url, chosen, roles=roles, progress=progress)
            report = await (run.dry() if dry_run else run.migrate())
    elapsed_ms = round((time.monotonic() - started) * 1000)
    return MigrationReport(report[0], report[1], dry_run, elapsed_ms)


_Reports = tuple[tuple[ProductReport, ...], tuple[str, ...]]


class _Run:
    """One migration of one database."""

    def __init__(
        self,
        conn: Session,
        url: str,
        products: tuple[Product, ...],
        *,
        roles: bool,
        progress: Progress,
    ) -> None:
        self.conn = conn
        self.url = url
        self.products = products
        self.roles = roles
        self.progress = progress

    async def dry(self) -> _Reports:
        """Say what would be done; change nothing."""
        await self._refuse_other_mode()
        async with self.conn.transaction(readonly=True):
            await self.conn.execute("set local search_path = pg_catalog, pg_temp")
            missing = await self._missing_roles()
            reports = [_report(await self._plan(product)) for product in self.products]
        return tuple(reports), missing

    async def migrate(self) -> _Reports:
        """Do what is to be done, product by product."""
        created: tuple[str, ...] = ()
        await self._refuse_other_mode()
        if self.roles and (
            await self._missing_roles() or await self.conn.fetchval(_ROLES_INCOMPLETE)
        ):
            created = await ensure_roles(self.conn)
        reports = [_report(await self._bring(product)) for product in self.products]
        return tuple(reports), created

    async def _missing_roles(self) -> tuple[str, ...]:
        if not self.roles:
            return ()
        existing = await existing_roles(self.conn)
        return tuple(role for role in ROLES if role not in existing)

    async def _refuse_other_mode(self) -> None:
        """Whether roles are ours to manage is decided by the first installation."""
        owner = await self.conn.fetchval(_OWNER_OF_RECORDS)
        if owner is not None and (owner == OWNER) != self.roles:
            was, option = ("with", "without") if owner == OWNER else ("without", "with")
            raise WrongUsage(
                f"this database was installed {was} our roles: its objects belong to {owner}",
                todo=f"run `penstock migrate` {option} the option --no-roles.",
            )

    async def _plan(self, product: Product) -> Plan:
        """What to do for a product, judged inside the current transaction."""
        recorded = (await snapshot.read_state(self.conn)).get(product.name, Recorded())
        plan = make_plan(product, recorded)
        if plan.action is Action.INSTALL:
            await refuse_foreign(self.conn, product)
        elif plan.action is Action.NOTHING and await snapshot.by_other_server(self.conn):
            return Plan(product, Action.REFRESH, plan.from_version)
        elif plan.action is Action.NOTHING and await self._has_drifted(product):
            return Plan(product, Action.REPAIR, plan.from_version)
        return plan

    async def _has_drifted(self, product: Product) -> bool:
        known = await snapshot.recorded(self.conn)
        live = await snapshot.take(self.conn, await self._installed())
        return any(
            described.kind in _REPAIRED and live.get(name) != described
            for name, described in known.items()
            if described.product == product.name
        )

    async def _installed(self, extra: Iterable[Product] = ()) -> tuple[Product, ...]:
        """The products that the database holds, as far as their packages are known."""
        names = {*await snapshot.read_state(self.conn), *(p.name for p in extra)}
        known = {p.name: p for p in (*available_products(), *self.products)}
        return tuple(product for name, product in known.items() if name in names)

    async def _bring(self, product: Product) -> Plan:
        """Bring one product to this release; the first plan is the one that is reported."""
        first: Plan | None = None
        while True:
            plan = await self._repeating(lambda: self._next(product))
            first = first or plan
            if plan.action is not Action.UPGRADE:
                return first
            migration = plan.pending[0]
            if not migration.transactional:
                self.progress(f"{product.name}: {migration.file.path} (outside a transaction)")
                await run_outside(self.url, product, migration, record=self._record_outside)

    async def _next(self, product: Product) -> Plan:
        """One transaction: an installation, one migration, or applying the definitions again."""
        async with locked(self.conn):
            plan = await self._plan(product)
            if plan.action is Action.NOTHING:
                return plan
            if plan.action is Action.UPGRADE and not plan.pending[0].transactional:
                return plan
            before = await snapshot.take(self.conn, await self._installed([product]))
            await self._apply(plan)
            if plan.action is not Action.REPAIR:
                await self._record_catalog(product, before)
            failpoint("mid_migration")
        return plan

    async def _record_catalog(self, product: Product, before: snapshot.Snapshot) -> None:
        on_record = {}
        if await snapshot.by_other_server(self.conn):
            before = {}  # nothing can be compared across versions of the server: record all anew
        else:
            on_record = dict(await snapshot.recorded(self.conn))
        after = await snapshot.take(self.conn, await self._installed([product]))
        await snapshot.record(self.conn, snapshot.merge(before, after, on_record))

    async def _apply(self, plan: Plan) -> None:
        product = plan.product
        target = apply.Target(self.roles, await existing_roles(self.conn))
        if plan.action is Action.UPGRADE:
            migration = plan.pending[0]
            self.progress(f"{product.name}: {migration.file.path}")
            await self._run(apply.file_steps(product.name, migration.file, target))
            await record_version(self.conn, product, migration)
            return
        self.progress(f"{product.name}: {plan.action}")
        stages = STAGES if plan.action is Action.INSTALL else REAPPLIED
        if plan.action is Action.INSTALL:
            await self._run(prerequisites(product, target))
        await self._run(apply.preparation(product, target))
        await self._run(apply.definitions(product, stages, target))
        await self._run(apply.conclusion(product, target))
        await self._record(plan)

    async def _record(self, plan: Plan) -> None:
        product = plan.product
        if plan.action is Action.INSTALL:
            for migration in product.migrations:
                await record_version(self.conn, product, migration)
        await record_baseline(self.conn, product)
        await snapshot.record_files(self.conn, product)

    async def _run(self, steps: Iterable[apply.Step]) -> None:
        for step in steps:
            role = apply.BECOME_OWNER if step.as_owner else apply.BECOME_LOGIN
            try:
                await self.conn.execute(role)
                await self.conn.execute(step.sql)
            except _COLLISIONS:
                raise
            except asyncpg.PostgresError as error:
                raise _failure(step, error) from error
        # The records are written as the login, who owns them or has joined their owner.
        await self.conn.execute(apply.BECOME_LOGIN)

    async def _record_outside(self, product: Product, migration: Migration) -> None:
        created = {
            s.creates.name for s in migration.file.statements if s.creates and s.creates.name
        }
        async with locked(self.conn):
            await record_version(self.conn, product, migration)
            live = await snapshot.take(self.conn, await self._installed([product]))
            forced = {name for name in live if name.rpartition(" ")[2].strip('"') in created}
            on_record = await snapshot.recorded(self.conn)
            await snapshot.record(self.conn, snapshot.merge(live, live, on_record, forced=forced))
            failpoint("mid_migration")

    async def _repeating(self, work: Callable[[], Awaitable[Plan]]) -> Plan:
        """Repeat a transaction that collided with running traffic."""
        for attempt in range(1, _ATTEMPTS):
            try:
                return await work()
            except _COLLISIONS as error:
                self.progress(f"waiting for a lock ({type(error).__name__}), attempt {attempt}")
                await asyncio.sleep(0.1 * attempt)
        return await work()


async def record_version(conn: Session, product: Product, migration: Migration) -> None:
    """Record that a migration was applied."""
    await conn.execute(
        "insert into penstock.migration (product, version, name, checksum) values ($1, $2, $3, $4) "
        "on conflict (product, version) do nothing",
        product.name,
        migration.version,
        migration.name,
        migration.checksum,
    )


async def record_baseline(conn: Session, product: Product) -> None:
    """Record the definitions under version 1."""
    await conn.execute(
        "insert into penstock.migration (product, version, name, checksum) "
        "values ($1, $2, 'definitions', $3) "
        "on conflict (product, version) do update set checksum = excluded.checksum",
        product.name,
        BASELINE,
        product.checksums[BASELINE],
    )


def _failure(step: apply.Step, error: asyncpg.PostgresError) -> Exception:
    ours = translate(error)
    if isinstance(ours, NotPermitted):
        ours.what = f"{step.label}: {ours.what}"
        ours.todo = (
            "migrate as the owner of the database (a login with CREATEROLE), or let an "
            "administrator run the script of `penstock schema print`."
        )
        return ours
    if ours is not None and ours.code in _PASSED_ON:
        return ours
    detail = f" ({error.detail})" if error.detail else ""
    return MigrationFailed(f"{step.label}: {error.message}{detail}")


def _report(plan: Plan) -> ProductReport:
    return ProductReport(
        plan.product.name,
        plan.action.value,
        plan.from_version,
        plan.product.version,
        plan.steps,
    )
