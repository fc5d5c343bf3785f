"""Intake over HTTP, on a real server: the seed's calls, identity, problems, operators."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import aiohttp
import jwt
import pytest
from tests.support.bridge import POOL, Sale
from tests.support.serving import serving
from tests.support.waiting import until

from penstock.application import Penstock
from penstock.kernel.secrets import Secret
from penstock.kernel.settings import Settings, with_values

SECRET = "s" * 32
CLAIM = "/rest/v1/rpc/claim_resource_and_queue"
DLQ = "/functions/v1/admin-dlq"
ANON = {"apikey": "anon-key"}
SERVICE = {"Authorization": "Bearer service-key"}
WORKER = {"Authorization": "Bearer worker-key"}
ADMIN = {"Authorization": "Bearer admin-key"}


def token(user: str, **changes: object) -> dict[str, str]:
    claims = {"sub": user, "aud": "authenticated", "exp": int(time.time()) + 60, **changes}
    return {"Authorization": f"Bearer {jwt.encode(claims, SECRET, algorithm='HS256')}"}


@dataclass
class Reply:
    status: int
    body: Any
    headers: dict[str, str]


@dataclass
class Client:
    session: aiohttp.ClientSession
    base: str

    async def __call__(
        self,
        method: str,
        path: str,
        document: object = None,
        headers: dict[str, str] | None = None,
        data: bytes | None = None,
    ) -> Reply:
        async with self.session.request(
            method, self.base + path, json=document, data=data, headers=headers
        ) as answer:
            text = await answer.text()
            found = {name.lower(): value for name, value in answer.headers.items()}
            return Reply(answer.status, json.loads(text) if text else None, found)


def application(database_url: str, ledger_url: str, **values: object) -> Penstock:
    given: dict[str, object] = {
        "jwt_secret": Secret(SECRET),
        "anon_key": Secret("anon-key"),
        "service_role_key": Secret("service-key"),
        "ledger_service_role_key": Secret("ledger-key"),
        "worker_key": Secret("worker-key"),
        "admin_key": Secret("admin-key"),
        "metrics_key": Secret("metrics-key"),
        "pool_size": 6,
    }
    settings = with_values(Settings(), **{**given, **values})
    return Penstock(database_url, ledger=ledger_url, settings=settings)


@pytest.fixture(params=["hot", "asgi"])
async def http(
    database_url: str, ledger_url: str, request: pytest.FixtureRequest
) -> AsyncIterator[Client]:
    async with (
        serving(application(database_url, ledger_url), hot=request.param == "hot") as base,
        aiohttp.ClientSession() as session,
    ):
        yield Client(session, base)


@pytest.fixture
async def demo_http(database_url: str, ledger_url: str) -> AsyncIterator[Client]:
    async with (
        serving(application(database_url, ledger_url, demo_anonymous_claims=True)) as base,
        aiohttp.ClientSession() as session,
    ):
        yield Client(session, base)


async def test_the_seeds_walk_from_claim_to_ticket(demo_http: Client, sale: Sale) -> None:
    await sale.open(1)
    body = {"p_pool_id": POOL, "p_user_id": "user_42"}
    claimed = await demo_http("POST", CLAIM, body, ANON)
    assert claimed.status == 200
    resource = UUID(claimed.body)
    assert (await demo_http("POST", CLAIM, {**body, "p_user_id": "user_43"}, ANON)).body is None
    ran = await demo_http("POST", "/functions/v1/bridge-worker", headers=SERVICE)
    assert ran.body == {"status": "ok", "processed": 1, "dlq": 0, "total": 1}
    again = await demo_http("POST", "/functions/v1/bridge-worker", headers=SERVICE)
    assert again.body == {"status": "idle"}
    tickets = await demo_http(
        "GET", "/rest/v1/confirmed_tickets?select=*", headers={"apikey": "ledger-key"}
    )
    assert [(row["resource_id"], row["user_id"]) for row in tickets.body] == [
        (str(resource), "user_42")
    ]
    slots = await demo_http(
        "GET",
        "/rest/v1/inventory_slots?select=id,status&status=eq.CONSUMED",
        headers={"apikey": "service-key"},
    )
    assert slots.body == [{"id": str(resource), "status": "CONSUMED"}]


async def test_identity_comes_from_the_token(http: Client, sale: Sale) -> None:
    await sale.open(5)
    own = await http("POST", CLAIM, {"p_pool_id": POOL}, token("alice"))
    assert (await sale.engine.slot(UUID(own.body)))["locked_by"] == "alice"
    other = await http("POST", CLAIM, {"p_pool_id": POOL, "p_user_id": "bob"}, token("alice"))
    assert (other.status, other.body["code"]) == (403, "PN702")
    named = await http("POST", CLAIM, {"p_pool_id": POOL, "p_user_id": "bob"}, SERVICE)
    assert (await sale.engine.slot(UUID(named.body)))["locked_by"] == "bob"
    anonymous = await http("POST", CLAIM, {"p_pool_id": POOL, "p_user_id": "eve"}, ANON)
    assert anonymous.status == 403
    for headers in ({}, {"Authorization": "Bearer x.y.z"}, token("a", exp=1), ADMIN, WORKER):
        refused = await http("POST", CLAIM, {"p_pool_id": POOL, "p_user_id": "eve"}, headers)
        assert (refused.status, refused.body["code"]) == (401, "PN701")
        assert refused.headers["www-authenticate"] == "Bearer"
    assert await sale.engine.counts() == (3, 2, 0)


async def test_a_repeated_request_id_gets_the_same_slot(http: Client, sale: Sale) -> None:
    await sale.open(5)
    body = {"p_pool_id": POOL, "p_request_id": "r-1"}
    first, second = await asyncio.gather(
        http("POST", CLAIM, body, token("alice")), http("POST", CLAIM, body, token("alice"))
    )
    assert first.body == second.body
    assert await sale.engine.counts() == (4, 1, 0)


async def test_reservations_answer_in_the_one_form(http: Client, sale: Sale) -> None:
    await sale.open(1, max_per_user=1)
    path = f"/v1/pools/{POOL}/reservations"
    key = {"Idempotency-Key": "k-1"}
    made = await http("POST", path, headers={**token("alice"), **key})
    assert made.status == 201
    assert made.body["state"] == "RESERVED"
    repeated = await http("POST", path, headers={**token("alice"), **key})
    assert (repeated.status, repeated.body) == (200, made.body)
    limit = await http("POST", path, headers={**token("alice"), "Idempotency-Key": "k-2"})
    assert (limit.status, limit.body["code"]) == (409, "PN303")
    assert limit.headers["content-type"] == "application/problem+json"
    sold = await http("POST", path, headers={**token("bob"), **key})
    assert (sold.status, sold.body["code"], sold.body["status"]) == (409, "PN301", 409)
    without = await http("POST", path, headers=token("bob"))
    assert (without.status, without.body["code"]) == (400, "PN706")
    await sale.engine.configure(is_active=False)
    closed = await http("POST", path, headers={**token("eve"), **key})
    assert (closed.status, closed.body["code"]) == (409, "PN304")


async def test_a_reservation_is_shown_to_its_owner_only(http: Client, sale: Sale) -> None:
    await sale.open(1)
    made = await http(
        "POST",
        f"/v1/pools/{POOL}/reservations",
        headers={**token("alice"), "Idempotency-Key": "k"},
    )
    path = made.headers["location"]
    assert (await http("GET", path, headers=token("alice"))).body["state"] == "RESERVED"
    assert (await http("GET", path, headers=SERVICE)).status == 200
    for headers in (token("bob"), ANON):
        assert (await http("GET", path, headers=headers)).status == 404
    assert (await http("GET", f"/v1/reservations/{uuid4()}", headers=SERVICE)).status == 404
    assert (await http("GET", "/v1/reservations/nonsense", headers=SERVICE)).status == 404
    await http("POST", "/functions/v1/bridge-worker", headers=WORKER)
    assert (await http("GET", path, headers=token("alice"))).body["state"] == "CONFIRMED"


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"", 400),
        (b"[]", 400),
        (b"{}", 400),
        (b'{"p_pool_id": 7}', 400),
        (b'{"p_pool_id": ""}', 400),
        (b'{"p_pool_id": "a\\u0000b"}', 400),
        (b'{"p_pool_id": "a\\ud800b"}', 400),
        (b'{"p_pool_id": "\xff"}', 400),
        (b'{"p_pool_id": "p", "drop": 1}', 400),
        (b'{"p_pool_id": "p", "p_request_id": "' + b"x" * 300 + b'"}', 400),
        (b'{"p_pool_id": ' + b"[" * 5000 + b"]" * 5000 + b"}", 400),
        (b'{"p_pool_id": "' + b"x" * 20_000 + b'"}', 413),
    ],
)
async def test_a_malformed_claim_is_refused_and_harms_nobody(
    http: Client, sale: Sale, data: bytes, status: int
) -> None:
    await sale.open(1)
    refused, good = await asyncio.gather(
        http("POST", CLAIM, headers=token("mallory"), data=data),
        http("POST", CLAIM, {"p_pool_id": POOL}, token("alice")),
    )
    assert (refused.status, refused.body["code"]) == (status, "PN706")
    assert good.status == 200
    assert str(UUID(good.body)) == good.body


async def test_an_endless_body_is_cut_off(http: Client) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while sent < 50_000_000:
            sent += 65536
            yield b"x" * 65536

    # The server answers and hangs up; which of the two the client sees first is chance.
    with contextlib.suppress(aiohttp.ClientError):
        async with http.session.post(
            http.base + CLAIM, data=endless(), headers=token("mallory")
        ) as answer:
            assert answer.status == 413
    assert sent < 50_000_000


async def test_the_keys_open_one_door_each(http: Client) -> None:
    worker, dlq = "/functions/v1/bridge-worker", DLQ
    assert (await http("POST", worker, headers=ADMIN)).status == 401
    assert (await http("GET", dlq, headers=WORKER)).status == 401
    for headers in ({}, ANON, token("alice")):
        assert (await http("POST", worker, headers=headers)).status in (401, 403)
        assert (await http("GET", dlq, headers=headers)).status in (401, 403)
        assert (await http("POST", f"{dlq}/replay", {"msg_ids": [1]}, headers)).status in (401, 403)
        assert (await http("GET", "/rest/v1/inventory_slots", headers=headers)).status in (401, 403)
    slots = await http("GET", "/rest/v1/inventory_slots", headers={"apikey": "ledger-key"})
    assert slots.status == 401


async def test_tables_are_read_in_pages_with_a_count(http: Client, sale: Sale) -> None:
    await sale.open(30)
    await sale.sell(*(f"u{n}" for n in range(25)))
    await http("POST", "/functions/v1/bridge-worker", headers=WORKER)
    path = "/rest/v1/confirmed_tickets?select=user_id&order=user_id.desc&limit=10&offset=20"
    page = await http("GET", path, headers={**SERVICE, "Prefer": "count=exact"})
    assert (page.status, page.headers["content-range"]) == (206, "20-24/25")
    users = [row["user_id"] for row in page.body]
    assert users == sorted((f"u{n}" for n in range(25)), reverse=True)[20:]
    own = await http("GET", "/rest/v1/confirmed_tickets?user_id=eq.u1", headers=token("u7"))
    assert [row["user_id"] for row in own.body] == ["u7"]
    for query in (
        "select=id,evil",
        "locked_by=neq.x",
        "pool_id=like.*",
        "status=eq.NONE",
        "id=eq.1",
        "limit=-1",
        "order=id.desc;drop",
        "id;select=eq.1",
    ):
        refused = await http("GET", f"/rest/v1/inventory_slots?{query}", headers=SERVICE)
        assert (refused.status, refused.body["code"]) == (400, "PN706"), query
    assert (await http("GET", "/rest/v1/pg_authid", headers=SERVICE)).status == 404
    for method in ("POST", "PATCH", "DELETE"):
        refused = await http(method, "/rest/v1/inventory_slots", {}, SERVICE)
        assert (refused.status, refused.body["code"]) == (405, "PN706")


async def test_dead_letters_are_listed_replayed_and_discarded(http: Client, sale: Sale) -> None:
    await sale.open(3, max_retries=1)
    await sale.sell("a", "b", "c")
    await sale.engine.conn.execute("update pgmq.q_intake_queue set read_ct = 5")
    ran = await http("POST", "/functions/v1/bridge-worker", headers=WORKER)
    assert ran.body["dlq"] == 3
    for _ in range(2):  # looking does not hide them
        listed = await http("GET", f"{DLQ}?pool_id={POOL}", headers=ADMIN)
        assert len(listed.body["messages"]) == 3
    assert (await http("GET", f"{DLQ}?pool_id=other", headers=ADMIN)).body["messages"] == []
    page = await http("GET", f"{DLQ}?limit=2", headers=ADMIN)
    assert page.body["next_after"] == page.body["messages"][-1]["msg_id"]
    first, second, third = (m["msg_id"] for m in listed.body["messages"])
    replayed = await http("POST", f"{DLQ}/replay", {"msg_ids": [first, first, 999]}, SERVICE)
    outcomes = {row["msg_id"]: row["outcome"] for row in replayed.body["results"]}
    assert (replayed.body["replayed"], outcomes) == (1, {first: "replayed", 999: "gone"})
    discarded = await http("POST", f"{DLQ}/discard", {"msg_ids": [second]}, ADMIN)
    assert discarded.body["discarded"] == 1
    left = await http("GET", DLQ, headers=ADMIN)
    assert [m["msg_id"] for m in left.body["messages"]] == [third]
    assert (await http("POST", "/functions/v1/bridge-worker", headers=WORKER)).body[
        "processed"
    ] == 1
    assert await sale.engine.counts() == (1, 1, 1)
    audits = await sale.engine.conn.fetchval(
        "select count(*) from audit.audit_logs where operation in ('replay', 'discard')"
    )
    assert audits == 2
    wrong: list[object] = [{"msg_ids": []}, {"msg_ids": ["x"]}, {"msg_ids": [-1]}, {"ids": [1]}]
    for body in wrong:
        assert (await http("POST", f"{DLQ}/discard", body, ADMIN)).status == 400
    await sale.prove()


async def test_discarding_a_started_commit_asks_the_ledger_first(http: Client, sale: Sale) -> None:
    await sale.open(2)
    await sale.sell("sold", "never")
    claimed = await sale.engine.claim()  # fences both, as a worker that then died would
    texts = {json.loads(row["message"])["user_id"]: row["message"] for row in claimed}
    await sale.ledger.execute("select finalize_transaction($1::jsonb)", texts["sold"])
    dead = [await sale.engine.reject(row) for row in claimed]
    answer = await http("POST", f"{DLQ}/discard", {"msg_ids": dead}, ADMIN)
    outcomes = [row["outcome"] for row in answer.body["results"]]
    assert sorted(outcomes) == ["retired", "sold"]
    assert await sale.engine.counts() == (1, 0, 1)
    with pytest.raises(Exception, match="cancelled"):
        await sale.ledger.execute("select finalize_transaction($1::jsonb)", texts["never"])
    await sale.prove()


async def test_without_the_database_the_answer_is_unknown_never_no(
    ledger_url: str, http: Client, sale: Sale
) -> None:
    await sale.open(1)
    # The server's own connections are cut while a claim waits behind a lock.
    lock = sale.engine.conn.transaction()
    await lock.start()
    await sale.engine.conn.execute("lock table inventory_slots in access exclusive mode")
    claim = asyncio.create_task(http("POST", CLAIM, {"p_pool_id": POOL}, token("alice")))
    name = await sale.engine.conn.fetchval("select current_database()")

    async def cut() -> object:
        # From outside the transaction, which would go on seeing the sessions of its first look.
        return await sale.ledger.fetchval(
            "select count(pg_terminate_backend(pid)) from pg_stat_activity where datname = $1"
            " and query like '%intake_reserve%' and wait_event_type = 'Lock'",
            name,
        )

    await until(cut, "the waiting claim's connection is cut")
    answer = await claim
    await lock.rollback()
    assert (answer.status, answer.body["code"]) == (503, "PN003")
    assert answer.headers["retry-after"]
    assert "same key" in answer.body["message"]
    again = await http("POST", CLAIM, {"p_pool_id": POOL}, token("alice"))
    assert str(UUID(again.body)) == again.body


async def test_health_and_metrics_stand_beside(http: Client) -> None:
    assert (await http("GET", "/healthz")).status == 200
    async with http.session.get(http.base + "/metrics") as refused:
        assert refused.status == 401
