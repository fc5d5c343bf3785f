"""Functions of the user's that events may be handed to."""

import json
from collections.abc import Sequence

import asyncpg
import pytest
from tests.support.outbox import Connection

TAKE = """
create table public.taken (place serial, event jsonb not null);
create function public.take(event jsonb) returns void language sql
as 'insert into public.taken (event) values (event)';
"""


async def hand_over(conn: Connection, function: str, numbers: Sequence[int]) -> int:
    events = json.dumps([{"n": n} for n in numbers])
    count: int = await conn.fetchval(
        "select app.outbox_call_function($1, $2::jsonb)", function, events
    )
    return count


@pytest.fixture
async def taking(conn: Connection) -> Connection:
    await conn.execute(TAKE)
    await conn.execute("insert into public.outbox_functions values ('public.take')")
    return conn


async def test_an_allowed_function_is_called_for_each_event_in_order(taking: Connection) -> None:
    assert await hand_over(taking, "public.take", range(50)) == 50
    rows = await taking.fetch("select (event ->> 'n')::int as n from public.taken order by place")
    assert [row["n"] for row in rows] == list(range(50))


async def test_a_function_that_is_not_listed_is_not_called(taking: Connection) -> None:
    with pytest.raises(asyncpg.PostgresError) as caught:
        await hand_over(taking, "pg_catalog.pg_sleep", [1])
    assert caught.value.sqlstate == "PN006"


async def test_a_listed_name_is_a_name_and_never_sql(taking: Connection) -> None:
    name = "public.take(null); drop table public.taken; --"
    await taking.execute("insert into public.outbox_functions values ($1)", name)
    with pytest.raises(asyncpg.UndefinedFunctionError):
        await hand_over(taking, name, [1])
    assert await taking.fetchval("select count(*) from public.taken") == 0


async def test_one_call_that_raises_undoes_them_all(taking: Connection) -> None:
    await taking.execute("alter table public.taken add check (event ->> 'n' <> '3')")
    with pytest.raises(asyncpg.CheckViolationError):
        await hand_over(taking, "public.take", range(5))
    assert await taking.fetchval("select count(*) from public.taken") == 0


async def test_the_list_does_not_stand_in_for_the_right_to_execute(taking: Connection) -> None:
    await taking.execute("revoke execute on function public.take(jsonb) from public")
    await taking.execute("set role penstock_outbox_executor")
    with pytest.raises(asyncpg.InsufficientPrivilegeError, match="take"):
        await hand_over(taking, "public.take", [1])
    await taking.execute("reset role")


async def test_workers_cannot_write_the_list(taking: Connection) -> None:
    for role in ("penstock_outbox_executor", "penstock_outbox_ingest", "penstock_control"):
        await taking.execute(f"set role {role}")
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await taking.execute("insert into public.outbox_functions values ('public.mine')")
        await taking.execute("reset role")
