"""Prints the whole installation, or an upgrade, as one SQL script; needs no connection.

The steps are those of `migrate`. A DBA runs it with `psql -1 -v ON_ERROR_STOP=1 -f FILE`, another
migration tool wraps it in its own transaction; it ends with the same records.
"""

from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import chain, groupby
from itertools import product as product_of

from penstock.kernel.errors import WrongUsage
from penstock.kernel.schema import apply, snapshot
from penstock.kernel.schema.grantees import for_existing_roles, roles_of
from penstock.kernel.schema.prerequisites import prerequisites
from penstock.kernel.schema.roles import ROLES, roles_script
from penstock.kernel.schema.session import LOCK, QUIET
from penstock.kernel.sqlfiles import BASELINE, REAPPLIED, STAGES, Migration, Product, SqlFile
from penstock.kernel.sqltext import Statement, split

# Where a product is installed in two steps: what holds data, then what works on it.
_HOLDING = ("schema", "types", "tables")
_WORKING = ("functions", "triggers", "views", "grants")
_GUARD_INSTALLED = """do $guard$
begin
    if to_regclass('penstock.migration') is null then
        return;
    end if;
    if exists (select from penstock.migration where product = {product}) then
        raise exception using errcode = 'PN101',
            message = {product} || ' is already installed here',
            hint = 'print the upgrade instead: penstock schema print --only {bare} --from VERSION';
    end if;
end
$guard$"""
_GUARD_VERSION = """do $guard$
begin
    if (select max(version) from penstock.migration where product = {product})
       is distinct from {version} then
        raise exception using errcode = 'PN101',
            message = {product} || ' is not at version {version} here';
    end if;
end
$guard$"""
_RECORD_VERSION = """insert into penstock.migration (product, version, name, checksum)
values ({product}, {version}, {name}, {checksum})
on conflict (product, version) do update set checksum = excluded.checksum"""
_RECORD_FILE = """insert into penstock.catalog (object, kind, product, definition, digest)
values ({object}, 'file', {product}, {version}, {digest})
on conflict (object) do update
set definition = excluded.definition, digest = excluded.digest"""
_CONDITIONAL = """do $grant$
begin
    if exists (select from pg_roles where rolname = {role}) then
        execute {statement};
    end if;
end
$grant$"""
_HEADER = """-- Penstock schema: {title}.
-- Run it in one transaction:  psql -1 -v ON_ERROR_STOP=1 -f FILE
"""
_RECORD_CATALOG = """delete from penstock.catalog where kind <> 'file';
prepare penstock_snapshot (jsonb) as
insert into penstock.catalog (object, kind, product, definition, digest)
select object, kind, product, definition, digest from (
{query}) as live;
execute penstock_snapshot ({scope});
deallocate penstock_snapshot;
{server}"""


# A block, so that psql prints no row for it.
_LOCKED = f"do $lock$ begin perform {LOCK}; end $lock$;"


class _Assumed(Container[str]):
    """The roles that a script may take for granted: ours, or none of ours."""

    def __init__(self, *, ours: bool) -> None:
        self._ours = ours

    def __contains__(self, role: object) -> bool:
        return role not in ROLES or self._ours


def print_install(products: Sequence[Product], *, roles: bool = True) -> str:
    """The script that installs the products, kernel first, on a database that has none of them."""
    names = ", ".join(f"{p.name} {p.version}" for p in products)
    target = apply.Target(roles, _Assumed(ours=roles))
    return _assemble(f"installation of {names}", _install(products, target), roles=roles)


def print_install_in_two(products: Sequence[Product]) -> tuple[str, str]:
    """The same in two scripts, for tools that keep the tables and functions of a product apart.

    The first ends with the tables of the last product, the second brings all that works on them.
    pgmq must be there or an extension of the server: these scripts are kept, and not with the text
    of others in them.
    """
    *before, last = products
    target = apply.Target(True, _Assumed(ours=True))
    first = _install_one(last, target, stages=_HOLDING, bundled=False)
    second = _complete(last, target, stages=_WORKING)
    names = ", ".join(p.name for p in before)
    return (
        _assemble(
            f"{names}; types and tables of {last.name}",
            chain(_install_whole(before, target), first),
            roles=True,
        ),
        _assemble(
            f"functions, triggers, views and grants of {last.name}",
            chain(second, (_catalog_piece(products),)),
            roles=False,
        ),
    )


def print_upgrade(
    products: Sequence[Product],
    from_version: int,
    *,
    installed: Sequence[Product],
    roles: bool = True,
) -> str:
    """The script from a version on: later migrations, then all that can be applied again.

    `installed` are all products of that database: the record of the catalog covers them.
    """
    for product in products:
        if not BASELINE <= from_version <= product.version:
            raise WrongUsage(f"{product.name} has versions {BASELINE} to {product.version}")
    names = ", ".join(p.name for p in products)
    target = apply.Target(roles, _Assumed(ours=roles))
    pieces = _upgrade(products, from_version, target=target, installed=installed)
    return _assemble(f"upgrade of {names} from version {from_version}", pieces, roles=roles)


_Piece = tuple[str, str, bool]


def _install(products: Sequence[Product], target: apply.Target) -> Iterator[_Piece]:
    yield from _install_whole(products, target)
    yield _catalog_piece(products)


def _install_whole(products: Sequence[Product], target: apply.Target) -> Iterator[_Piece]:
    for product in products:
        yield from _install_one(product, target, stages=STAGES, bundled=True)
        yield from _complete(product, target, stages=())


def _install_one(
    product: Product, target: apply.Target, *, stages: Sequence[str], bundled: bool
) -> Iterator[_Piece]:
    guard = _GUARD_INSTALLED.format(product=apply.quote_text(product.name), bare=product.name)
    yield f"{product.name}: only where it is not installed", guard, False
    yield from _pieces(prerequisites(product, target, bundled=bundled))
    yield from _pieces(apply.preparation(product, target))
    yield from _definitions(product, stages, target)


def _complete(product: Product, target: apply.Target, *, stages: Sequence[str]) -> Iterator[_Piece]:
    yield from _definitions(product, stages, target)
    yield from _pieces(apply.conclusion(product, target))
    for migration in product.migrations:
        yield _version_piece(product, migration.version, migration.name)
    yield from _records(product)


def _upgrade(
    products: Sequence[Product],
    from_version: int,
    *,
    target: apply.Target,
    installed: Sequence[Product],
) -> Iterator[_Piece]:
    for product in products:
        guard = _GUARD_VERSION.format(product=apply.quote_text(product.name), version=from_version)
        yield f"{product.name}: only at version {from_version}", guard, False
        for migration in product.migrations:
            if migration.version > from_version:
                file = _in_transaction(migration)
                yield from _pieces(_file_steps(product.name, file, target))
                yield _version_piece(product, migration.version, migration.name)
        yield from _pieces(apply.preparation(product, target))
        yield from _definitions(product, REAPPLIED, target)
        yield from _pieces(apply.conclusion(product, target))
        yield from _records(product)
    yield _catalog_piece(installed)


def _assemble(title: str, pieces: Iterable[_Piece], *, roles: bool) -> str:
    parts = [_HEADER.format(title=title), f"{_LOCKED}{QUIET.rstrip()};\n"]
    if roles:
        parts.append(roles_script())
    owner = False
    for label, sql, as_owner in pieces:
        if as_owner != owner:
            parts.append(f"{apply.BECOME_OWNER if as_owner else apply.BECOME_LOGIN};\n")
            owner = as_owner
        parts.append(f"-- {label}\n{sql};\n")
    if owner:
        parts.append(f"{apply.BECOME_LOGIN};\n")
    return "\n".join(parts)


def _pieces(steps: Iterable[apply.Step]) -> Iterator[_Piece]:
    for step in steps:
        yield step.label, step.sql, step.as_owner


def _definitions(product: Product, stages: Sequence[str], target: apply.Target) -> Iterator[_Piece]:
    for file in product.files(stages):
        yield from _pieces(_file_steps(product.name, file, target))


def _file_steps(product: str, file: SqlFile, target: apply.Target) -> Iterator[apply.Step]:
    """The steps of a file; grants to roles of others apply only where those exist."""
    for foreign, group in groupby(file.statements, _foreign_roles):
        statements = list(group)
        texts = (for_existing_roles(s, ROLES) if foreign else s.text for s in statements)
        plain = ";\n".join(text for text in texts if text is not None)
        yield from apply.file_steps(product, SqlFile(file.path, plain), target)
        for statement, role in product_of(statements, foreign):
            label = f"{product}/{file.path} (where the role exists)"
            as_owner = target.roles and not apply.needs_login(statement)
            yield apply.Step(label, _conditional(statement, role), as_owner)


def _foreign_roles(statement: Statement) -> tuple[str, ...]:
    return tuple(role for role in roles_of(statement) if role not in ROLES)


def _conditional(statement: Statement, role: str) -> str:
    text = for_existing_roles(statement, {role})
    assert text is not None
    return _CONDITIONAL.format(role=apply.quote_text(role), statement=apply.quote_text(text))


def _in_transaction(migration: Migration) -> SqlFile:
    """A migration without `concurrently`, which a script in one transaction cannot have."""
    if migration.transactional:
        return migration.file
    kept = [
        "".join(t.text for t in statement.tokens if t.folded != "concurrently")
        for statement in split(migration.file.text)
    ]
    return SqlFile(migration.file.path, ";\n".join(kept))


def _version_piece(product: Product, version: int, name: str) -> _Piece:
    sql = _RECORD_VERSION.format(
        product=apply.quote_text(product.name),
        version=version,
        name=apply.quote_text(name),
        checksum=apply.quote_text(product.checksums[version]),
    )
    return f"{product.name}: record of version {version}", sql, False


def _records(product: Product) -> Iterator[_Piece]:
    yield _version_piece(product, BASELINE, "definitions")
    for name, digest in snapshot.file_rows(product):
        sql = _RECORD_FILE.format(
            object=apply.quote_text(name),
            product=apply.quote_text(product.name),
            version=apply.quote_text(str(product.version)),
            digest=apply.quote_text(digest),
        )
        yield f"{product.name}: record of its files", sql, False


def _catalog_piece(products: Sequence[Product]) -> _Piece:
    sql = _RECORD_CATALOG.format(
        query=snapshot.snapshot_query(),
        scope=apply.quote_text(snapshot.scope(products)),
        server=snapshot.RECORD_SERVER.strip(),
    )
    return "record of the catalog, for `penstock schema verify`", sql, False
