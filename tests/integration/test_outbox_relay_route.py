"""Hints over HTTP: who may send them, what is believed of them, and what they set in motion."""

import asyncio
import io
import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import aiohttp
import pytest
from tests.support.jobs import Connection, Job, publish, states
from tests.support.serving import serving
from tests.support.waiting import until

from penstock import Event, Penstock, Topic
from penstock.api.mount import Mounted
from penstock.api.outbox import PATH
from penstock.kernel.secrets import Secret
from penstock.kernel.settings import Settings, with_values
from penstock.kernel.sqlfiles import optional_script

OLD, NEW = "old-secret", "new-secret"
# What pg_net and the Vault offer, as far as the job uses it; neither can be installed here.
PG_NET_STUB = """
create schema net;
create table net.posted (url text, body jsonb, headers jsonb);
create function net.http_post(
    url text, body jsonb default '{}', params jsonb default '{}',
    headers jsonb default '{"Content-Type": "application/json"}',
    timeout_milliseconds integer default 5000
) returns bigint language sql as $$
    insert into net.posted values (url, body, headers) returning 1::bigint
$$;
create schema vault;
create table vault.decrypted_secrets (name text, decrypted_secret text);
"""


@dataclass
class Client:
    session: aiohttp.ClientSession
    base: str

    async def __call__(
        self, document: object, secret: str | None = NEW
    ) -> tuple[int, dict[str, Any]]:
        headers = {} if secret is None else {"X-Outbox-Secret": secret}
        body = io.BytesIO(json.dumps(document).encode())
        async with self.session.post(self.base + PATH, data=body, headers=headers) as answer:
            return answer.status, await answer.json(content_type=None)


def short(table: str, row: UUID) -> dict[str, object]:
    return {"table": table, "id": str(row)}


def webhook(schema: str, table: str, row: UUID, **record: object) -> dict[str, object]:
    """The body that a Supabase database webhook sends."""
    return {
        "type": "INSERT",
        "schema": schema,
        "table": table,
        "record": {"id": str(row), "status": "PENDING", "retry_count": 0, **record},
        "old_record": None,
    }


@pytest.fixture
def ps(database_url: str) -> Penstock:
    settings = with_values(Settings(), outbox_secrets=(Secret(OLD), Secret(NEW)), pool_size=6)
    return Penstock(database_url, settings=settings)


@pytest.fixture
def seen(ps: Penstock) -> list[UUID]:
    handled: list[UUID] = []
    transfers = ps.outbox.topic("payments.outbox_transfers", dict[str, Any])

    @transfers.on()
    async def handle(event: Event[dict[str, Any]]) -> None:
        handled.append(event.id)

    return handled


@pytest.fixture
async def client(ps: Penstock, seen: list[UUID]) -> AsyncIterator[Client]:
    async with serving(ps) as base, aiohttp.ClientSession() as session:
        yield Client(session, base)


async def _transfer(conn: Connection, amount: int = 5) -> UUID:
    row: UUID = await conn.fetchval(
        "insert into payments.outbox_transfers (payload) values ($1) returning id",
        f'{{"amount": {amount}}}',
    )
    return row


async def test_a_hint_relays_the_row_and_the_answer_says_so(
    conn: Connection, client: Client, seen: list[UUID]
) -> None:
    row = await _transfer(conn)
    status, body = await client(webhook("payments", "outbox_transfers", row))
    assert (status, body["status"], body["finished"]) == (200, "ran", 1)
    assert seen == [row]
    sent = await conn.fetchval("select status from payments.outbox_transfers where id = $1", row)
    assert sent == "SENT"


@pytest.mark.parametrize("secret", [OLD, NEW])
async def test_two_secrets_are_live_at_a_time(
    conn: Connection, client: Client, secret: str
) -> None:
    row = await _transfer(conn)
    status, body = await client(short("payments.outbox_transfers", row), secret)
    assert (status, body["finished"]) == (200, 1)


@pytest.mark.parametrize("secret", [None, "", "wrong", OLD + NEW, f"{OLD},{NEW}", OLD[:-1], "é"])
async def test_without_a_secret_nothing_is_told_and_nothing_read(
    conn: Connection, client: Client, seen: list[UUID], secret: str | None
) -> None:
    row = await _transfer(conn)
    answers = [
        await client(short("payments.outbox_transfers", row), secret),
        await client(short("public.nothing", row), secret),
        await client({"nonsense": 1}, secret),
    ]
    assert {status for status, _ in answers} == {401}
    assert len({str(body) for _, body in answers}) == 1
    assert seen == []


async def test_no_configured_secret_means_nobody_enters(
    conn: Connection, database_url: str
) -> None:
    async with serving(Penstock(database_url)) as base, aiohttp.ClientSession() as session:
        for secret in (None, "", "x"):
            answer = await Client(session, base)(short("public.outbox", uuid4()), secret)
            assert answer[0] == 401


@pytest.mark.parametrize(
    "table",
    [
        "public.outbox_archive",
        "audit.audit_logs",
        "public.none",
        "outbox",
        "",
        "a'b.c",
        "public.ou\0",
    ],
)
async def test_a_table_that_is_not_listed_does_not_exist(
    conn: Connection, client: Client, table: str
) -> None:
    status, body = await client(short(table, uuid4()))
    assert status == 404
    assert "not relayed" in body["detail"]
    assert table == "" or table not in str(body)


@pytest.mark.parametrize(
    "document",
    [
        [],
        {"table": "public.outbox"},
        {"table": "public.outbox", "id": "no-id"},
        {"table": 7, "id": str(uuid4())},
        {"type": "DELETE", "schema": "public", "table": "outbox", "record": None},
    ],
)
async def test_a_body_that_names_no_row_is_refused(client: Client, document: object) -> None:
    assert (await client(document))[0] == 400


async def test_what_is_not_there_or_done_already_is_no_failure(
    conn: Connection, client: Client, seen: list[UUID]
) -> None:
    assert (await client(short("public.outbox", uuid4())))[1] == {"status": "idle"}
    row = await _transfer(conn)
    hint = webhook("payments", "outbox_transfers", row)
    await client(hint)
    assert await client(hint) == (200, {"status": "idle"})
    await conn.execute("delete from payments.outbox_transfers")
    assert await client(hint) == (200, {"status": "idle"})
    assert seen == [row]


async def test_the_posted_record_is_never_believed(
    conn: Connection, client: Client, ps: Penstock, seen: list[UUID]
) -> None:
    row = await _transfer(conn, amount=5)
    forged = webhook("payments", "outbox_transfers", row, payload={"amount": 999})
    await client(forged)
    stored = await conn.fetchval("select payload ->> 'amount' from public.outbox_archive")
    assert stored == "5"
    ledger = uuid4()
    assert (await client(webhook("ledger", "outbox_ledger", ledger)))[1] == {"status": "idle"}
    assert (await client(short("ledger.outbox_ledger", row)))[1] == {"status": "idle"}
    assert seen == [row]


async def test_hints_for_a_thousand_rows_and_a_sweep_dispatch_each_once(
    conn: Connection, client: Client, ps: Penstock, seen: list[UUID]
) -> None:
    inserted = await conn.fetch(
        "insert into payments.outbox_transfers (payload)"
        " select '{}' from generate_series(1, 1000) returning id"
    )
    rows = [row["id"] for row in inserted]

    async def hints(some: list[UUID]) -> None:
        for row in some:
            status, _ = await client(short("payments.outbox_transfers", row))
            assert status in (200, 202)

    doubled = [rows[at::10] for at in range(10)] + [rows[at : at + 50] for at in (0, 500)]
    await asyncio.gather(ps.work(until_idle=True), *(hints(some) for some in doubled))
    await until(
        lambda: conn.fetchval(
            "select count(*) = 1000 from payments.outbox_transfers where status = 'SENT'"
        ),
        "every row is sent",
    )
    assert sorted(seen) == sorted(rows)


async def test_a_worker_in_this_process_is_rung_and_does_the_work(
    conn: Connection, ps: Penstock, seen: list[UUID]
) -> None:
    # Poll so seldom that only the bell can be the cause.
    ps.use(with_values(ps.settings, poll_ms=600_000, listen="off"))
    served = Mounted(ps, work=True)
    async with serving(served) as base, aiohttp.ClientSession() as session:
        client = Client(session, base)
        first = await _transfer(conn)
        # Until the worker has started, a hint is answered by a run of its own.
        await until(lambda: _rings(client, conn), "the worker is rung")
        await until(lambda: _is(len(seen), at_least=2), "the row is handled")
        assert first in seen


async def _rings(client: Client, conn: Connection) -> bool:
    row = await _transfer(conn)
    _, body = await client(short("payments.outbox_transfers", row))
    return bool(body["status"] == "rung")


async def _is(count: int, *, at_least: int) -> bool:
    return count >= at_least


async def test_where_nobody_handles_events_the_hint_is_accepted(
    conn: Connection, database_url: str
) -> None:
    settings = with_values(Settings(), outbox_secrets=(Secret(NEW),))
    row = await _transfer(conn)
    async with (
        serving(Penstock(database_url, settings=settings)) as base,
        aiohttp.ClientSession() as session,
    ):
        answer = await Client(session, base)(short("payments.outbox_transfers", row))
    assert answer == (202, {"status": "accepted"})
    assert await states(conn) == {"READY": 1}


async def test_a_large_record_is_read_and_a_larger_one_is_not(
    conn: Connection, client: Client
) -> None:
    row = await _transfer(conn)
    big = webhook("payments", "outbox_transfers", row, payload={"x": "y" * 1_500_000})
    assert (await client(big))[0] == 200
    assert (await client({**big, "old_record": {"x": "y" * 4_000_000}}))[0] == 413


async def test_an_expired_lease_is_worth_a_hint(
    conn: Connection, client: Client, seen: list[UUID]
) -> None:
    await conn.execute("update penstock.queue_config set lease_s = 1")
    row = await _transfer(conn)
    await conn.execute("select app.outbox_claim(1, gen_random_uuid())")
    assert (await client(short("public.outbox", row)))[1] == {"status": "idle"}
    assert await conn.fetchval("select app.outbox_waiting()") is None
    await until(lambda: conn.fetchval("select app.outbox_waiting() = $1", row), "the lease ends")

    async def handled() -> bool:
        assert (await client(short("public.outbox", row)))[1]["status"] == "ran"
        return seen == [row]

    await until(handled, "a hint brings the row back")


async def test_the_cron_job_nudges_the_route_while_something_waits(
    conn: Connection, client: Client, seen: list[UUID]
) -> None:
    found = re.search(
        r"v_job text := \$job\$(.*?)\$job\$", optional_script("penstock.outbox", "cron"), re.DOTALL
    )
    assert found is not None
    job = found[1]
    await conn.execute(PG_NET_STUB)
    row = await _transfer(conn)
    await conn.execute(job)
    assert await conn.fetch("select from net.posted") == []  # the Vault holds nothing yet
    await conn.execute(
        "insert into vault.decrypted_secrets values"
        " ('app.outbox_relay_url', $1), ('app.outbox_relay_secret', $2)",
        client.base + PATH,
        NEW,
    )
    await conn.execute(job)
    posted = await conn.fetchrow("select url, body::text, headers::text from net.posted")
    assert posted is not None
    async with client.session.post(
        posted["url"],
        data=posted["body"],
        headers={"content-type": "application/json", "x-outbox-secret": NEW},
    ) as answer:
        assert (await answer.json())["finished"] == 1
    assert seen == [row]
    assert NEW in posted["headers"]
    assert NEW not in job
    await conn.execute(job)
    assert await conn.fetchval("select count(*) from net.posted") == 1  # nothing waits any more


async def test_only_the_outbox_can_be_mounted(ps: Penstock, seen: list[UUID]) -> None:
    async with (
        serving(Mounted(ps, only=frozenset({"inbox"}))) as base,
        aiohttp.ClientSession() as session,
    ):
        assert (await Client(session, base)(short("public.outbox", uuid4())))[0] == 404
    async with (
        serving(Mounted(ps, only=frozenset({"outbox"}))) as base,
        aiohttp.ClientSession() as session,
    ):
        assert (await Client(session, base)(short("public.outbox", uuid4())))[0] == 200


async def test_published_events_can_be_hinted_at_too(conn: Connection, ps: Penstock) -> None:
    jobs: Topic[Job] = ps.outbox.topic("jobs", Job)
    done: list[int] = []

    @jobs.on()
    async def handle(event: Event[Job]) -> None:
        done.append(event.data.number)

    async with serving(ps) as base, aiohttp.ClientSession() as session:
        await publish(conn, jobs, 1, 2, 3)
        row = await conn.fetchval("select id from public.outbox limit 1")
        await Client(session, base)(webhook("public", "outbox", row))
    assert sorted(done) == [1, 2, 3]
