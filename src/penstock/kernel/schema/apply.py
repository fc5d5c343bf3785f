"""Turns the SQL files of a product into steps: text, and whether the login or the owner runs it.

`migrate` runs the steps and `schema print` writes them down, so the two cannot differ.
"""

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from importlib.resources import files
from itertools import groupby

from penstock.kernel.schema.grantees import for_existing_roles
from penstock.kernel.schema.roles import OWNER
from penstock.kernel.sqlfiles import Product, SqlFile
from penstock.kernel.sqltext import Statement

BECOME_OWNER = f"set local role {OWNER}"
BECOME_LOGIN = "reset role"
_PRIVATE = "alter default privileges revoke execute on functions from public"


@dataclass(frozen=True, slots=True)
class Step:
    """SQL to run as the owner of our objects or as the login; `label` names it in messages."""

    label: str
    sql: str
    as_owner: bool


@dataclass(frozen=True, slots=True)
class Target:
    """The database that steps are made for: with our roles or without, and which roles exist."""

    roles: bool
    existing: Container[str]


def quote_name(name: str) -> str:
    """An identifier, quoted always."""
    return '"' + name.replace('"', '""') + '"'


def quote_text(text: str) -> str:
    """A text literal."""
    return "'" + text.replace("'", "''") + "'"


def preparation(product: Product, target: Target) -> Iterator[Step]:
    """Schemas, and the owner's right to create in those that are shared."""
    own = [c.name for c, _ in product.creations if c.kind == "schema"]
    label = f"{product.name}: schemas"
    for schema in own:
        authorization = f" authorization {OWNER}" if target.roles else ""
        sql = f"create schema if not exists {quote_name(schema)}{authorization}"
        yield Step(label, sql, as_owner=False)
    if not target.roles:
        return
    for schema in product.schemas:
        yield Step(label, with_argument("share.sql", schema), as_owner=False)
    yield Step(f"{product.name}: default rights", _PRIVATE, as_owner=True)


def definitions(product: Product, stages: Iterable[str], target: Target) -> Iterator[Step]:
    """The files of these stages, in load order."""
    for file in product.files(tuple(stages)):
        yield from file_steps(product.name, file, target)


def file_steps(product: str, file: SqlFile, target: Target) -> Iterator[Step]:
    """One file; neighbouring statements of the same role travel together."""
    label = f"{product}/{file.path}"
    for as_login, group in groupby(file.statements, needs_login):
        texts = [text for s in group if (text := _adapted(s, target)) is not None]
        if texts:
            yield Step(label, ";\n".join(texts), as_owner=target.roles and not as_login)


def needs_login(statement: Statement) -> bool:
    """What concerns the database, or a schema that may have been there before us.

    The owner of our objects has no right on the database itself, and needs none. Where the schema
    is the owner's, the login acts for it: it has joined that role.
    """
    creation = statement.creates
    if creation is not None:
        return creation.kind in {"schema", "extension"}
    if statement.starts("comment", "on", "schema"):
        return True
    rights = statement.starts("grant") or statement.starts("revoke")
    return rights and ("on", "schema") in zip(statement.words, statement.words[1:], strict=False)


def _adapted(statement: Statement, target: Target) -> str | None:
    creation = statement.creates
    if creation is not None and creation.kind == "schema":
        authorization = f" authorization {OWNER}" if target.roles else ""
        return f"create schema if not exists {quote_name(creation.name)}{authorization}"
    return for_existing_roles(statement, target.existing)


def conclusion(product: Product, target: Target) -> Iterator[Step]:
    """Check every function body, now that all that they name exists; rebuild the shared views."""
    names = sorted({c.qualified for c, _ in product.creations if c.kind == "function"})
    if names:
        label = f"{product.name}: function bodies"
        yield Step(label, with_argument("validate.sql", " ".join(names)), as_owner=target.roles)
    yield Step(
        f"{product.name}: views over all queues", packaged("views.sql"), as_owner=target.roles
    )


def packaged(name: str) -> str:
    """The text of one of the blocks beside this module."""
    return files(__package__).joinpath(name).read_text("utf-8").strip().removesuffix(";")


def with_argument(name: str, argument: str) -> str:
    """A packaged block with its one argument in a setting, since a block takes no parameters."""
    return f"set local penstock.argument = {quote_text(argument)};\n{packaged(name)}"
