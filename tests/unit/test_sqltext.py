"""The SQL reader: splitting, names, columns, grantees."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernel.schema.grantees import for_existing_roles, roles_of
from penstock.kernel.sqltext import columns, split, tokenize

TRICKY = """
-- a comment; with a semicolon
create table a.b (x text default ';''; ', y text default e'\\';');
/* block ; /* nested ; */ still ; */ select $$;$$, $tag$ ; $$ ; $tag$, "odd;""name";
create function a.f(p integer) returns integer language sql
begin atomic
    select case when p > 1 then 2 else 3 end;
    select 4;
end;
select $1, 'last'
"""


def test_a_semicolon_in_quotes_comments_or_bodies_does_not_end_a_statement() -> None:
    heads = [statement.words[:2] for statement in split(TRICKY)]
    assert heads == [
        ("create", "table"),
        ("select", "$$;$$"),
        ("create", "function"),
        ("select", "$1"),
    ]


@given(st.text(alphabet="a;'\"$-/*\\ \nE1x", max_size=60))
def test_tokens_joined_are_the_text_again(text: str) -> None:
    assert "".join(token.text for token in tokenize(text)) == text


@given(st.text(alphabet="ab';$ ", max_size=40))
def test_a_quoted_literal_never_splits(text: str) -> None:
    literal = "'" + text.replace("'", "''") + "'"
    assert len(split(f"select {literal}; select 2")) == 2


def test_digests_ignore_comments_and_spacing_but_not_meaning() -> None:
    one, same, other = split("select 1 -- why\n, 2; select 1,\n2; select 1, 3")
    assert one.canonical == same.canonical
    assert one.canonical != other.canonical


@pytest.mark.parametrize(
    ("text", "kind", "name"),
    [
        ("create table if not exists a.b (x int)", "table", "a.b"),
        ('create unlogged table "A"."b c" (x int)', "table", "A.b c"),
        ("create or replace view a.v as select 1", "view", "a.v"),
        ("create unique index concurrently if not exists i on a.b (x)", "index", "i"),
        ("create or replace function a.f(text) returns text", "function", "a.f"),
        ("create schema if not exists a", "schema", "a"),
        ("create type a.t as enum ('x')", "type", "a.t"),
        ("create constraint trigger t after insert on a.b", "trigger", "t"),
    ],
)
def test_the_created_name_is_found(text: str, kind: str, name: str) -> None:
    creation = split(text)[0].creates
    assert creation is not None
    assert (creation.kind, creation.qualified) == (kind, name)


def test_columns_leave_out_constraints() -> None:
    (statement,) = split(
        "create table a.b (id bigint generated always as identity primary key,"
        " price numeric(10, 2) not null check (price > 0), tags text[] default '{}',"
        " at timestamp with time zone, unique (id, price), constraint c check (id > 0))"
    )
    assert columns(statement) == (
        ("id", "bigint"),
        ("price", "numeric(10,2)"),
        ("tags", "text[]"),
        ("at", "timestamp with time zone"),
    )


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("grant select on a.b to gone", None),
        ("grant select on a.b to here, gone with grant option", "here"),
        ("grant usage on schema a to here", "here"),
        ("revoke all on function a.f(text) from public", "public"),
        ("create policy p on a.b for all to gone using (true)", None),
        ("create policy p on a.b to gone, here using (x in (select y from z))", "here"),
        ("alter table a.b owner to gone", None),
        ("alter default privileges for role gone grant select on tables to here", None),
    ],
)
def test_grants_to_absent_roles_are_left_out(text: str, left: str | None) -> None:
    (statement,) = split(text)
    adapted = for_existing_roles(statement, {"here"})
    if left is None:
        assert adapted is None
    else:
        assert adapted is not None
        assert "gone" not in adapted
        assert roles_of(split(adapted)[0]) == (() if left == "public" else (left,))


def test_other_statements_are_untouched() -> None:
    text = "alter table a.b rename to gone"
    assert for_existing_roles(split(text)[0], set()) == text
