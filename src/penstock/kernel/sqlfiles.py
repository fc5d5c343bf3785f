"""Finds the packaged SQL of a product: stages in load order, migrations, digests.

The order is fixed by file name, so there is no manifest. Digests of definitions ignore comments and
spacing; the digest of a migration is that of its text, because a released one is never edited.
"""

import hashlib
import importlib.util
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib.abc import Traversable
from importlib.resources import files

from penstock.kernel.errors import MigrationChanged
from penstock.kernel.sqltext import Creation, Statement, split

STAGES = ("schema", "types", "functions", "tables", "triggers", "views", "grants")
# These hold no data and are written so that they can be applied again at any time.
REAPPLIED = ("schema", "functions", "triggers", "views", "grants")
BASELINE = 1
NO_TRANSACTION = re.compile(r"^--\s*penstock:\s*no transaction\s*$", re.MULTILINE)
_MIGRATION_NAME = re.compile(r"(\d{4})_((?:expand|contract)_[a-z0-9_]+)\.sql")


def digest(text: str) -> str:
    """The SHA-256 of a text, in hexadecimal, whatever the line endings of the checkout."""
    return hashlib.sha256(text.replace("\r\n", "\n").encode()).hexdigest()


@dataclass(frozen=True)
class SqlFile:
    """One SQL file; `path` is relative to the product, for messages."""

    path: str
    text: str

    @cached_property
    def statements(self) -> tuple[Statement, ...]:
        """The statements of the file."""
        return split(self.text)


@dataclass(frozen=True)
class Migration:
    """One numbered change of tables or types; `name` tells its phase and purpose."""

    version: int
    name: str
    file: SqlFile

    @property
    def checksum(self) -> str:
        """The digest of the text, recorded when it is applied."""
        return digest(self.file.text)

    @property
    def transactional(self) -> bool:
        """Whether it runs inside a transaction; its header may say that it does not."""
        return NO_TRANSACTION.search(self.file.text) is None


@dataclass(frozen=True)
class Product:
    """A line of migrations: its definitions by stage, and its numbered changes."""

    name: str
    stages: dict[str, tuple[SqlFile, ...]]
    migrations: tuple[Migration, ...]

    @property
    def version(self) -> int:
        """The version of the schema that the definitions describe."""
        return self.migrations[-1].version if self.migrations else BASELINE

    @cached_property
    def digests(self) -> dict[str, str]:
        """The digest of each stage, by stage name."""
        return {stage: _stage_digest(self.stages.get(stage, ())) for stage in STAGES}

    @cached_property
    def checksums(self) -> dict[int, str]:
        """What `penstock.migration` must hold: the definitions as version 1, then each change."""
        everything = digest("\n".join(f"{stage} {self.digests[stage]}" for stage in STAGES))
        return {BASELINE: everything} | {m.version: m.checksum for m in self.migrations}

    def files(self, stages: Iterable[str] = STAGES) -> Iterator[SqlFile]:
        """The files of these stages, in load order."""
        for stage in STAGES:
            if stage in stages:
                yield from self.stages.get(stage, ())

    @cached_property
    def creations(self) -> tuple[tuple[Creation, Statement], ...]:
        """Every object that the definitions create, with the statement that does."""
        statements = (statement for file in self.files() for statement in file.statements)
        return tuple((s.creates, s) for s in statements if s.creates is not None)

    @cached_property
    def schemas(self) -> tuple[str, ...]:
        """The schemas that the product puts objects into, its own first."""
        own = [c.name for c, _ in self.creations if c.kind == "schema"]
        used = sorted({c.schema for c, _ in self.creations if c.schema})
        return tuple(dict.fromkeys([*own, *used]))


def load_product(name: str, root: Traversable) -> Product:
    """Read a product's SQL folder; entries that do not exist are empty stages."""
    stages = {stage: tuple(_stage_files(root, stage)) for stage in STAGES}
    return Product(name, stages, tuple(_migrations(root)))


def find_product(name: str, package: str) -> Product | None:
    """Read the SQL of a package of ours; None when it, or its folder `sql`, does not exist."""
    if importlib.util.find_spec(package) is None:
        return None
    root = files(package).joinpath("sql")
    return load_product(name, root) if root.is_dir() else None


def optional_script(package: str, name: str) -> str:
    """A script that no migration runs, for those who ask for it."""
    return files(package).joinpath("sql", "optional", f"{name}.sql").read_text(encoding="utf-8")


def _stage_files(root: Traversable, stage: str) -> Iterator[SqlFile]:
    single = root.joinpath(f"{stage}.sql")
    if single.is_file():
        yield SqlFile(f"{stage}.sql", single.read_text(encoding="utf-8"))
    yield from _folder_files(root, stage)


def _folder_files(root: Traversable, folder: str) -> Iterator[SqlFile]:
    entries = root.joinpath(folder)
    if not entries.is_dir():
        return
    for entry in sorted(entries.iterdir(), key=lambda entry: entry.name):
        if entry.name.endswith(".sql"):
            yield SqlFile(f"{folder}/{entry.name}", entry.read_text(encoding="utf-8"))


def _migrations(root: Traversable) -> Iterator[Migration]:
    before = BASELINE
    for file in _folder_files(root, "migrations"):
        match = _MIGRATION_NAME.fullmatch(file.path.removeprefix("migrations/"))
        if match is None or int(match[1]) != before + 1:
            raise MigrationChanged(
                f"{file.path} is out of line: expected {before + 1:04}_expand_words.sql "
                f"or {before + 1:04}_contract_words.sql",
                happened="the installed package holds migrations with a gap or a bad name.",
                todo="reinstall the package; migrations are numbered without gaps from 0002 on.",
            )
        before += 1
        yield Migration(before, match[2], file)


def _stage_digest(stage: tuple[SqlFile, ...]) -> str:
    return digest("\n".join(s.canonical for file in stage for s in file.statements))
