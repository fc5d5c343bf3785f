"""A worker written from the seed alone: plain SQL, one event at a time, on one connection."""

from datetime import timedelta
from uuid import UUID, uuid4

import asyncpg
import pytest
from tests.support.inbox import Connection, SqlInbox

from penstock.kernel.database import translated
from penstock.kernel.errors import BadLease, LeaseLost

CLAIM = "SELECT * FROM webhook.claim_next_event(NULL)"
MARK = "SELECT webhook.mark_event_result($1::uuid, $2::webhook_event_status, $3::text)"


@pytest.fixture
async def other(database_url: str) -> "Connection":
    """A second session."""
    return await asyncpg.connect(database_url)


async def test_claim_process_acknowledge_until_nothing_is_left(
    inbox: SqlInbox, stripe: UUID
) -> None:
    await inbox.send(stripe, "evt-1", "evt-2")
    seen = []
    while event := await inbox.conn.fetchrow(CLAIM):
        assert set(event.keys()) == {"id", "webhook_id", "event_id", "payload", "signature"}
        await inbox.conn.execute(
            "INSERT INTO webhook_side_effects (id, provider, event_id, payload, created_at)"
            " VALUES (gen_random_uuid(), 'mock-provider', $1, $2::jsonb, now())"
            " ON CONFLICT (provider, event_id) DO NOTHING",
            event["event_id"],
            event["payload"],
        )
        await inbox.conn.execute(MARK, event["id"], "success", None)
        seen.append(event["event_id"])
    assert seen == ["evt-1", "evt-2"]
    assert await inbox.status("evt-1") == await inbox.status("evt-2") == "success"


async def test_a_worker_may_keep_to_one_webhook(inbox: SqlInbox, stripe: UUID) -> None:
    mine = await inbox.source("mine")
    await inbox.send(stripe, "theirs")
    await inbox.send(mine, "ours")
    rows = await inbox.conn.fetch("SELECT event_id FROM webhook.claim_next_event($1)", mine)
    assert [row["event_id"] for row in rows] == ["ours"]


async def test_two_sessions_never_get_the_same_event(
    inbox: SqlInbox, stripe: UUID, other: Connection
) -> None:
    await inbox.send(stripe, "evt-1")
    assert await inbox.conn.fetchrow(CLAIM) is not None
    assert await other.fetchrow(CLAIM) is None
    await other.close()


async def test_another_session_cannot_end_what_it_did_not_claim(
    inbox: SqlInbox, stripe: UUID, other: Connection
) -> None:
    (event,) = await inbox.send(stripe, "evt-1")
    await inbox.conn.fetchrow(CLAIM)
    for status in ("success", "failed", "dead_letter"):
        with pytest.raises(LeaseLost), translated():
            await other.execute(MARK, event, status, None)
    assert await inbox.status("evt-1") == "processing"
    await other.close()


async def test_a_slow_worker_cannot_undo_the_success_of_its_successor(
    inbox: SqlInbox, stripe: UUID, other: Connection
) -> None:
    (event,) = await inbox.send(stripe, "evt-1")
    await inbox.conn.fetchrow(CLAIM)
    await inbox.advance(timedelta(seconds=31))
    await inbox.tend()
    assert await other.fetchval("select id from webhook.claim_next_event()") == event
    await other.execute(MARK, event, "success", None)
    for status in ("dead_letter", "pending", "success"):
        with pytest.raises(LeaseLost), translated():
            await inbox.conn.execute(MARK, event, status, "too late")
    assert await inbox.status("evt-1") == "success"
    await other.close()


async def test_a_dead_letter_cannot_be_set_to_success_by_guessing_its_id(
    inbox: SqlInbox, stripe: UUID
) -> None:
    (event,) = await inbox.send(stripe, "evt-1")
    await inbox.conn.fetchrow(CLAIM)
    await inbox.conn.execute(MARK, event, "dead_letter", "signature_invalid")
    assert (await inbox.row(event))["error_code"] == "signature_invalid"
    with pytest.raises(LeaseLost), translated():
        await inbox.conn.execute(MARK, event, "success", None)
    four = "select webhook.mark_event_result($1, 'success', null, $2)"
    assert await inbox.conn.fetchval(four, event, uuid4()) is False
    assert await inbox.status("evt-1") == "dead_letter"


async def test_the_token_as_fourth_argument_works_on_any_connection(
    inbox: SqlInbox, stripe: UUID, other: Connection
) -> None:
    (event,) = await inbox.send(stripe, "evt-1")
    await inbox.conn.fetchrow(CLAIM)
    token = UUID(await inbox.conn.fetchval("select current_setting('penstock.lease_token')"))
    four = "select webhook.mark_event_result($1, 'success', null, $2)"
    assert await other.fetchval(four, event, token) is True
    assert await inbox.status("evt-1") == "success"
    await other.close()


async def test_processing_is_no_result(inbox: SqlInbox, stripe: UUID) -> None:
    (event,) = await inbox.send(stripe, "evt-1")
    await inbox.conn.fetchrow(CLAIM)
    with pytest.raises(BadLease), translated():
        await inbox.conn.execute(MARK, event, "processing", None)


async def test_the_seeds_own_way_back_to_pending_waits_and_ends(
    inbox: SqlInbox, stripe: UUID
) -> None:
    (event,) = await inbox.send(stripe, "evt-1")
    for attempt in range(1, 6):
        claimed = await inbox.conn.fetchrow(CLAIM)
        assert claimed is not None, f"attempt {attempt}"
        await inbox.conn.execute(
            "UPDATE webhook_events SET status = 'pending' WHERE id = $1", event
        )
        assert await inbox.conn.fetchrow(CLAIM) is None  # it does not burn its attempts
        await inbox.advance(timedelta(seconds=100))
        await inbox.tend()
    row = await inbox.row(event)
    assert (row["status"], row["attempts"]) == ("dead_letter", 5)


async def test_a_status_set_by_hand_revives_a_dead_letter_and_takes_no_lease(
    inbox: SqlInbox, stripe: UUID
) -> None:
    (event,) = await inbox.send(stripe, "evt-1")
    await inbox.fail(await inbox.claim(), "reject")
    await inbox.conn.execute("update webhook_events set status = 'pending', attempts = 0")
    with pytest.raises(BadLease), translated():
        await inbox.conn.execute("update webhook_events set status = 'processing'")
    assert [item.id for item in await inbox.claim()] == [event]
