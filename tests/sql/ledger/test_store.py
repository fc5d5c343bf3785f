"""The typed calls fit the functions that they call."""

import json
from uuid import uuid4

import pytest
from tests.support.intake import Connection

from penstock.kernel.errors import PenstockError
from penstock.ledger import store


def payload(user: str = "u") -> dict[str, str]:
    return {
        "resource_id": str(uuid4()),
        "reservation_id": str(uuid4()),
        "pool_id": "demo",
        "user_id": user,
    }


async def test_every_call_of_the_ledger(ledger: Connection) -> None:
    items = [payload("a"), payload("b")]
    await store.finalize(ledger, json.dumps(items[0]))
    answers = await store.finalize_many(ledger, [json.dumps(item) for item in items])
    assert answers == ["already", "confirmed"]
    found = await store.tickets(ledger, None)
    assert sorted(ticket.user_id for ticket in found) == ["a", "b"]
    cancelled = uuid4()
    assert await store.cancel(ledger, cancelled) == "CANCELLED"
    assert await store.outcomes(ledger, [cancelled]) == {cancelled: "CANCELLED"}
    assert await store.prove(ledger) == []
    ids, users = [t.resource_id for t in found], [t.user_id for t in found]
    reservations = [t.reservation_id or uuid4() for t in found]
    assert await store.prove_sold(ledger, ids, users=users, reservations=reservations) == []
    assert (
        len(await store.prove_sold(ledger, ids, users=users[::-1], reservations=reservations)) == 2
    )


async def test_a_conflict_has_its_code(ledger: Connection) -> None:
    item = payload()
    await store.finalize(ledger, json.dumps(item))
    with pytest.raises(PenstockError) as caught:
        await store.finalize(ledger, json.dumps({**item, "reservation_id": str(uuid4())}))
    assert "another reservation" in str(caught.value)
