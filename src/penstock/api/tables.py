"""A small, closed part of PostgREST's table reads: two tables, `eq`, order, pages, count.

The statements are fixed: what a caller chooses is only ever a parameter. Columns are picked from
the rows afterwards; one absent filter is one NULL parameter.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import parse_qsl
from uuid import UUID

import msgspec

from penstock.kernel.database import PooledConnection, call
from penstock.kernel.http_errors import RequestRefused

ROWS_MAX = 1000
_NUMBER = re.compile(r"[0-9]{1,9}", re.ASCII)
_STATUSES = frozenset({"AVAILABLE", "RESERVED", "CONSUMED"})


@dataclass(frozen=True, slots=True)
class Table:
    """A table that may be read; `owner` names the column by which a user sees own rows only.

    `rows` takes the filters in the order of `filters`, then order column, descending, limit and
    offset; `count` takes the filters.
    """

    name: str
    place: Literal["engine", "ledger"]
    columns: tuple[str, ...]
    filters: tuple[str, ...]
    rows: str
    count: str
    owner: str | None = None


TABLES = {
    "confirmed_tickets": Table(
        name="confirmed_tickets",
        place="ledger",
        columns=("resource_id", "pool_id", "user_id", "confirmed_at", "reservation_id"),
        filters=("resource_id", "pool_id", "user_id", "reservation_id"),
        owner="user_id",
        rows="""
            select to_jsonb(t)::text as row
            from (select resource_id, pool_id, user_id, confirmed_at, reservation_id
                  from public.confirmed_tickets) t
            where ($1::uuid is null or t.resource_id = $1)
              and ($2::text is null or t.pool_id = $2)
              and ($3::text is null or t.user_id = $3)
              and ($4::uuid is null or t.reservation_id = $4)
            order by case when not $6::boolean then to_jsonb(t) -> $5::text end,
                     case when $6::boolean then to_jsonb(t) -> $5::text end desc nulls last
            limit $7 offset $8
        """,
        count="""
            select count(*) as count from public.confirmed_tickets t
            where ($1::uuid is null or t.resource_id = $1)
              and ($2::text is null or t.pool_id = $2)
              and ($3::text is null or t.user_id = $3)
              and ($4::uuid is null or t.reservation_id = $4)
        """,
    ),
    "inventory_slots": Table(
        name="inventory_slots",
        place="engine",
        columns=("id", "pool_id", "status", "locked_by", "locked_at", "reservation_id"),
        filters=("id", "pool_id", "status", "locked_by", "reservation_id"),
        rows="""
            select to_jsonb(t)::text as row
            from (select id, pool_id, status, locked_by, locked_at, reservation_id
                  from public.inventory_slots) t
            where ($1::uuid is null or t.id = $1)
              and ($2::text is null or t.pool_id = $2)
              and ($3::text is null or t.status::text = $3)
              and ($4::text is null or t.locked_by = $4)
              and ($5::uuid is null or t.reservation_id = $5)
            order by case when not $7::boolean then to_jsonb(t) -> $6::text end,
                     case when $7::boolean then to_jsonb(t) -> $6::text end desc nulls last
            limit $8 offset $9
        """,
        count="""
            select count(*) as count from public.inventory_slots t
            where ($1::uuid is null or t.id = $1)
              and ($2::text is null or t.pool_id = $2)
              and ($3::text is null or t.status::text = $3)
              and ($4::text is null or t.locked_by = $4)
              and ($5::uuid is null or t.reservation_id = $5)
        """,
    ),
}


@dataclass(frozen=True, slots=True)
class Query:
    """A checked question: every name in it is one of the table's own."""

    table: Table
    columns: tuple[str, ...]
    filters: Mapping[str, object]
    order: str | None
    descending: bool
    limit: int
    offset: int

    def filter_values(self) -> list[object]:
        """One value per filter of the table; None where it is not asked for."""
        return [self.filters.get(name) for name in self.table.filters]


def parse(table: Table, query_string: str, *, owner: str | None = None) -> Query:
    """The question a query string asks; raises RequestRefused for what is not known.

    With an owner, only that user's rows are seen, whatever else is asked.
    """
    columns = table.columns
    filters: dict[str, object] = {}
    order, descending = None, False
    limit, offset = ROWS_MAX, 0
    for name, value in _pairs(query_string):
        match name:
            case "select":
                columns = _columns(table, value)
            case "order":
                order, descending = _order(table, value)
            case "limit":
                limit = min(_number(name, value), ROWS_MAX)
            case "offset":
                offset = _number(name, value)
            case _:
                filters[name] = _filter(table, name, value)
    if owner is not None:
        assert table.owner is not None, "only tables with an owner are read by users"
        filters[table.owner] = owner
    return Query(table, columns, filters, order, descending, limit, offset)


def _pairs(query_string: str) -> list[tuple[str, str]]:
    try:
        pairs = parse_qsl(query_string, keep_blank_values=True, max_num_fields=20, errors="strict")
    except (ValueError, UnicodeDecodeError):
        raise RequestRefused("the query cannot be read") from None
    names = [name for name, _ in pairs]
    if len(set(names)) != len(names):
        raise RequestRefused("a name stands twice in the query")
    return pairs


def _columns(table: Table, text: str) -> tuple[str, ...]:
    if text.strip() in ("*", ""):
        return table.columns
    return tuple(_known(table, part.strip(), table.columns) for part in text.split(","))


def _order(table: Table, text: str) -> tuple[str, bool]:
    name, _, direction = text.partition(".")
    if direction not in ("", "asc", "desc"):
        raise RequestRefused("order takes one column, with .asc or .desc")
    return _known(table, name, table.columns), direction == "desc"


def _filter(table: Table, name: str, text: str) -> object:
    _known(table, name, table.filters)
    operator, found, value = text.partition(".")
    if operator != "eq" or not found or "\0" in value or len(value) > 200:
        raise RequestRefused("the only filter here is column=eq.value")
    if name == "status" and value not in _STATUSES:
        raise RequestRefused(f"status is one of {', '.join(sorted(_STATUSES))}")
    if name == "id" or (name.endswith("_id") and name not in ("pool_id", "user_id")):
        try:
            return UUID(value)
        except ValueError:
            raise RequestRefused(f"{name} wants a UUID") from None
    return value


def _known(table: Table, name: str, names: Sequence[str]) -> str:
    if name not in names:
        raise RequestRefused(
            f"{table.name} has no column {name[:40]!r} for this", todo=f"use {', '.join(names)}."
        )
    return name


def _number(name: str, text: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise RequestRefused(f"{name} wants a whole number")
    return int(text)


async def read(conn: PooledConnection, query: Query) -> list[dict[str, Any]]:
    """The rows, with the chosen columns."""
    found = await call(
        conn,
        query.table.rows,
        *query.filter_values(),
        query.order or query.table.columns[0],
        query.descending,
        query.limit,
        query.offset,
    )
    rows = [msgspec.json.decode(row["row"], type=dict[str, Any]) for row in found]
    return [{name: row[name] for name in query.columns} for row in rows]


async def count(conn: PooledConnection, query: Query) -> int:
    """How many rows there are in all."""
    return int((await call(conn, query.table.count, *query.filter_values()))[0]["count"])


def content_range(query: Query, shown: int, total: int | None) -> str:
    """The header that tells which rows of how many these are."""
    of = "*" if total is None else str(total)
    return f"{query.offset}-{query.offset + shown - 1}/{of}" if shown else f"*/{of}"
