"""Decides what a migration has to do, from what is recorded and what the package holds. Pure."""

from dataclasses import dataclass, field
from enum import StrEnum

from penstock.kernel.errors import MigrationChanged, SchemaTooNew
from penstock.kernel.sqlfiles import BASELINE, REAPPLIED, STAGES, Migration, Product


class Action(StrEnum):
    """What happens to one product."""

    INSTALL = "install"  # nothing is there: apply the definitions
    UPGRADE = "upgrade"  # apply pending migrations, then whatever can be applied again
    REFRESH = "refresh"  # same version, other text of functions, triggers, views or grants
    REPAIR = "repair"  # same text, but the database has drifted
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Recorded:
    """What a database says of one product: checksum by version, and digest by stage.

    `stage_version` is the version for which the stages were recorded; it lags behind while an
    upgrade is unfinished.
    """

    checksums: dict[int, str] = field(default_factory=dict)
    stages: dict[str, str] = field(default_factory=dict)
    stage_version: int = 0

    @property
    def version(self) -> int:
        """The version of the product in the database; 0 when it is not installed."""
        return max(self.checksums, default=0)


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done for one product."""

    product: Product
    action: Action
    from_version: int
    pending: tuple[Migration, ...] = ()

    @property
    def steps(self) -> tuple[str, ...]:
        """The plan in words, for `--dry-run`."""
        if self.action is Action.NOTHING:
            return ()
        changes = tuple(f"apply migration {m.version:04} {m.name}" for m in self.pending)
        stages = STAGES if self.action is Action.INSTALL else REAPPLIED
        verb = "create" if self.action is Action.INSTALL else "apply again"
        present = [stage for stage in stages if self.product.stages.get(stage)]
        return (*changes, *(f"{verb} {_counted(self.product, stage)}" for stage in present))


def _counted(product: Product, stage: str) -> str:
    count = len(product.stages[stage])
    return f"{count} {stage}" if stage == "functions" else stage


@dataclass(frozen=True, slots=True)
class ProductReport:
    """What was done for one product."""

    product: str
    action: str
    from_version: int
    to_version: int
    steps: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MigrationReport:
    """What one `migrate` did, or with `dry_run` would do."""

    products: tuple[ProductReport, ...]
    roles_created: tuple[str, ...]
    dry_run: bool
    elapsed_ms: int

    @property
    def changed(self) -> bool:
        """Whether anything was, or would be, done."""
        return bool(self.roles_created) or any(p.action != "nothing" for p in self.products)


def make_plan(product: Product, recorded: Recorded) -> Plan:
    """Decide, or refuse: SchemaTooNew, MigrationChanged. Drift is looked at elsewhere."""
    if not recorded.checksums:
        return Plan(product, Action.INSTALL, 0)
    if recorded.version > product.version:
        raise SchemaTooNew(
            f"{product.name} is at version {recorded.version} in the database, "
            f"this release knows {product.version}",
            todo="migrate with the newer release; an older one would undo its functions.",
        )
    _refuse_edited(product, recorded)
    pending = tuple(m for m in product.migrations if m.version > recorded.version)
    if pending:
        return Plan(product, Action.UPGRADE, recorded.version, pending)
    if recorded.checksums.get(BASELINE) == product.checksums[BASELINE]:
        return Plan(product, Action.NOTHING, recorded.version)
    _refuse_changed_tables(product, recorded)
    return Plan(product, Action.REFRESH, recorded.version)


def _refuse_edited(product: Product, recorded: Recorded) -> None:
    for migration in product.migrations:
        applied = recorded.checksums.get(migration.version)
        if applied is not None and applied != migration.checksum:
            raise MigrationChanged(
                f"{product.name}/{migration.file.path} was applied with checksum "
                f"{applied[:12]}, the file now has {migration.checksum[:12]}"
            )


def _refuse_changed_tables(product: Product, recorded: Recorded) -> None:
    """Tables and types hold data: other text at the same version has no way to get there."""
    if recorded.stage_version < product.version:
        return
    for stage in STAGES:
        if stage not in REAPPLIED and recorded.stages.get(stage) != product.digests[stage]:
            raise MigrationChanged(
                f"{product.name}/{stage}.sql changed, but no migration leads there from "
                f"version {product.version}",
                happened="definitions of tables and types differ from those that were installed, "
                "at the same version.",
                todo=f"add migrations/{product.version + 1:04}_expand_….sql with the change, or "
                "restore the file; in development, drop the database and migrate afresh.",
            )
