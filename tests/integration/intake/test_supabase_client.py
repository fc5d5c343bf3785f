"""Supabase's own Python client against our HTTP interface: what the seed's clients would do."""

from collections.abc import AsyncIterator, Awaitable, Callable
from uuid import UUID

import httpx
import jwt
import pytest
from postgrest import APIError, CountMethod
from supabase import AsyncClient, AsyncClientOptions, acreate_client
from tests.integration.intake.test_http import application, token
from tests.support.bridge import POOL, Sale
from tests.support.serving import serving

from penstock.kernel.secrets import Secret

# The client warns about its own use of its own parameters.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

# Supabase's keys are tokens themselves; the client looks at their shape.
ANON_KEY = jwt.encode({"role": "anon"}, "x" * 32, algorithm="HS256")
SERVICE_KEY = jwt.encode({"role": "service_role"}, "x" * 32, algorithm="HS256")


@pytest.fixture
async def address(database_url: str, ledger_url: str) -> AsyncIterator[str]:
    served = application(
        database_url,
        ledger_url,
        anon_key=Secret(ANON_KEY),
        service_role_key=Secret(SERVICE_KEY),
        demo_anonymous_claims=True,
    )
    async with serving(served) as base:
        yield base


Connect = Callable[..., Awaitable[AsyncClient]]


@pytest.fixture
async def client(address: str) -> AsyncIterator[Connect]:
    """Makes clients that share a pool of connections, so that these can be closed."""
    shared: list[httpx.AsyncClient] = []

    async def connect(key: str, headers: dict[str, str] | None = None) -> AsyncClient:
        shared.append(httpx.AsyncClient())
        options = AsyncClientOptions(headers=headers or {}, httpx_client=shared[-1])
        return await acreate_client(address, key, options)

    yield connect
    for pool in shared:
        await pool.aclose()


async def test_claim_bridge_and_reads_by_the_clients_own_calls(client: Connect, sale: Sale) -> None:
    await sale.open(2)
    buyer = await client(ANON_KEY)
    arguments = {"p_pool_id": POOL, "p_user_id": "user_42"}
    claimed = await buyer.rpc("claim_resource_and_queue", arguments).execute()
    resource = UUID(str(claimed.data))
    service = await client(SERVICE_KEY)
    ran = await service.functions.invoke("bridge-worker", {"responseType": "json"})
    assert ran == {"status": "ok", "processed": 1, "dlq": 0, "total": 1}
    tickets = (
        await service.table("confirmed_tickets").select("*", count=CountMethod.exact).execute()
    )
    assert tickets.count == 1
    (ticket,) = tickets.data
    assert isinstance(ticket, dict)
    assert (ticket["resource_id"], ticket["user_id"]) == (str(resource), "user_42")
    slots = (
        await service.table("inventory_slots")
        .select("id,status")
        .eq("status", "CONSUMED")
        .order("id", desc=True)
        .limit(10)
        .execute()
    )
    assert slots.data == [{"id": str(resource), "status": "CONSUMED"}]


async def test_sold_out_is_none_and_an_error_is_read_as_postgrests(
    client: Connect, sale: Sale
) -> None:
    await sale.open(1, max_per_user=1)
    await sale.sell("somebody")
    buyer = await client(ANON_KEY)
    arguments = {"p_pool_id": POOL, "p_user_id": "user_42"}
    assert (await buyer.rpc("claim_resource_and_queue", arguments).execute()).data is None
    await sale.engine.configure(is_active=False)
    with pytest.raises(APIError) as caught:
        await buyer.rpc("claim_resource_and_queue", arguments).execute()
    assert (caught.value.code, bool(caught.value.hint)) == ("PN304", True)


async def test_a_signed_in_user_claims_for_itself_and_sees_own_tickets(
    client: Connect, sale: Sale
) -> None:
    await sale.open(3)
    await sale.sell("bob")
    alice = await client(ANON_KEY, token("alice"))
    claimed = await alice.rpc("claim_resource_and_queue", {"p_pool_id": POOL}).execute()
    service = await client(SERVICE_KEY)
    await service.functions.invoke("bridge-worker")
    seen = await alice.table("confirmed_tickets").select("resource_id,user_id").execute()
    assert seen.data == [{"resource_id": str(claimed.data), "user_id": "alice"}]
    with pytest.raises(APIError):
        await alice.table("inventory_slots").select("id").execute()
