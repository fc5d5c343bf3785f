"""Models of topics: kept by version, and what may change within one."""

from dataclasses import dataclass
from typing import Any, NotRequired, TypedDict

import msgspec
import pydantic
import pytest
from tests.support.jobs import Connection, work

from penstock import Event, Penstock, SchemaChanged
from penstock.outbox.schemas import differences, schema_of


@dataclass
class Line:
    sku: str


@dataclass
class Order:
    number: int
    lines: list[Line]
    title: str = ""


@dataclass
class OrderWithNote:
    number: int
    lines: list[Line]
    title: str = ""
    note: str | None = None


@dataclass
class OrderNeedsNote:
    number: int
    lines: list[Line]
    note: str
    title: str = ""


@dataclass
class OrderByText:
    number: str
    lines: list[Line]
    title: str = ""


@dataclass
class OrderWithoutNumber:
    lines: list[Line]


@dataclass
class OrderWithNumberedNote:
    number: int
    lines: list[Line]
    note: int | None = None


class Strict(msgspec.Struct, forbid_unknown_fields=True):
    number: int


class StrictWithNote(msgspec.Struct, forbid_unknown_fields=True):
    number: int
    note: str | None = None


class Lenient(msgspec.Struct):
    number: int
    note: str | None = None


class Typed(TypedDict):
    number: int
    note: NotRequired[str]


class Pydantic(pydantic.BaseModel):
    """A model of another library."""

    number: int


def _app(url: str, model: Any, version: int = 1) -> Penstock:
    ps = Penstock(url)

    async def handler(event: Event[Any]) -> None:
        del event

    ps.outbox.topic("orders", model, version=version).on()(handler)
    return ps


async def _versions(conn: Connection) -> list[int]:
    rows = await conn.fetch("select version from public.outbox_schemas order by version")
    return [row["version"] for row in rows]


async def test_optional_fields_may_come_and_go(database_url: str, conn: Connection) -> None:
    for model in (Order, OrderWithNote, Order):
        await work(_app(database_url, model))
    assert await _versions(conn) == [1]


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (OrderNeedsNote, r"\$\.note is now required"),
        (OrderByText, r"\$\.number has another type"),
        (OrderWithoutNumber, r"\$\.number is no longer always there"),
    ],
)
async def test_what_cannot_be_read_needs_a_new_version(
    database_url: str, conn: Connection, model: Any, said: str
) -> None:
    await work(_app(database_url, Order))
    with pytest.raises(SchemaChanged, match=said):
        await work(_app(database_url, model))
    await work(_app(database_url, model, version=2))
    assert await _versions(conn) == [1, 2]


async def test_an_optional_field_that_went_does_not_come_back_as_another(
    database_url: str, conn: Connection
) -> None:
    for model in (OrderWithNote, Order):
        await work(_app(database_url, model))
    with pytest.raises(SchemaChanged, match=r"\$\.note has another type"):
        await work(_app(database_url, OrderWithNumberedNote))
    await work(_app(database_url, OrderWithNote))
    assert await _versions(conn) == [1]


@pytest.mark.parametrize(
    ("first", "then"), [(Strict, StrictWithNote), (StrictWithNote, Strict), (Lenient, Strict)]
)
async def test_what_refuses_unknown_fields_cannot_change_them(
    database_url: str, conn: Connection, first: Any, then: Any
) -> None:
    await work(_app(database_url, first))
    with pytest.raises(SchemaChanged, match=r"\$\.note is not accepted by both"):
        await work(_app(database_url, then))
    assert await _versions(conn) == [1]


def test_schemas_of_all_kinds_of_models() -> None:
    for model in (Lenient, Typed):
        schema = schema_of(model)
        assert schema is not None
        assert (schema["required"], sorted(schema["properties"])) == (
            ["number"],
            ["note", "number"],
        )

    assert schema_of(dict) is not None
    assert schema_of(dict[str, object]) is None, "it says nothing that could be compared"
    found = schema_of(Pydantic)
    assert found is not None
    assert found["required"] == ["number"]
    assert list(differences(found, found)) == []
    order = schema_of(Order)
    assert order is not None
    assert order["properties"]["lines"]["items"]["required"] == ["sku"]
    assert "title" in order["properties"]
