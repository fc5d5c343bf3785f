"""`penstock dead replay inbox`: stored bytes are verified again before an event runs once more."""

import asyncio
import json
from typing import Any
from uuid import UUID

import pytest
from tests.support.cli import make_cli
from tests.support.inbox import SqlInbox, arrival

from penstock.inbox.providers import provider

SECRET = "whsec_of_the_dead"
REASON = ("--reason", "fixed", "--yes")


class Dead:
    """Runs `penstock dead replay inbox …` beside the test's own event loop."""

    def __init__(self, capsys: pytest.CaptureFixture[str], url: str) -> None:
        self._cli = make_cli(capsys, "--json", "--database", url, "dead", "replay", "inbox")

    async def replay(self, *arguments: str) -> tuple[int, Any]:
        """The exit code and the document of one run."""
        ran = await asyncio.to_thread(self._cli, *arguments, *REASON)
        assert ran.out, ran.err
        assert SECRET not in ran.out + ran.err
        return ran.code, json.loads(ran.out)


@pytest.fixture
def tool(
    database_url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Dead:
    monkeypatch.setenv("STRIPE_SECRET", SECRET)
    monkeypatch.setenv("LOGNAME", "ada")
    return Dead(capsys, database_url)


@pytest.fixture
async def signed(inbox: SqlInbox) -> UUID:
    return await inbox.source("signed", secret_refs=["env:STRIPE_SECRET"])


async def dead(inbox: SqlInbox, webhook_id: UUID, *event_ids: str) -> list[str]:
    """Genuine events that have died; returns their ids as the command takes them."""
    now_s = int((await inbox.conn.fetchval("select penstock.clock()")).timestamp())
    ids = []
    for event_id in event_ids:
        body = f'{{"id": "{event_id}", "type": "t"}}'
        header = provider("stripe").sign(SECRET, body.encode(), at_s=now_s)["stripe-signature"]
        headers = json.dumps({"stripe-signature": header})
        event = arrival(webhook_id, event_id, body, signature=header, headers=headers)
        assert await inbox.receive(event) == ["stored"]
        ids.append(str(event.id))
    await inbox.fail(await inbox.claim(), "reject")
    return ids


async def spoil(inbox: SqlInbox, event_id: str) -> None:
    query = "update webhook_events set raw_body = raw_body || ' ' where event_id = $1"
    await inbox.conn.execute(query, event_id)


async def test_what_does_not_verify_is_left_out_and_said(
    inbox: SqlInbox, signed: UUID, tool: Dead
) -> None:
    await dead(inbox, signed, "evt_1", "evt_2", "evt_3")
    await spoil(inbox, "evt_2")
    code, told = await tool.replay("--all")
    assert (code, told["replayed"], told["unverified"]) == (1, 2, 1)
    states = [await inbox.status(event) for event in ("evt_1", "evt_2", "evt_3")]
    assert states == ["pending", "dead_letter", "pending"]
    query = "select operation from audit.audit_logs where operator = 'ada' order by at"
    rows = await inbox.conn.fetch(query)
    assert [row["operation"] for row in rows] == ["verify", "replay", "replay"]


async def test_genuine_events_are_replayed_also_after_a_rotation(
    inbox: SqlInbox, signed: UUID, tool: Dead, monkeypatch: pytest.MonkeyPatch
) -> None:
    (event,) = await dead(inbox, signed, "evt_1")
    monkeypatch.setenv("NEXT_SECRET", "whsec_of_the_next")
    await inbox.conn.execute(
        "update webhook_endpoints set secret_refs = array['env:NEXT_SECRET', 'env:STRIPE_SECRET']"
    )
    assert (await tool.replay(event))[0] == 0
    assert await inbox.status("evt_1") == "pending"


async def test_without_its_secret_an_event_needs_a_word_more(
    inbox: SqlInbox, signed: UUID, tool: Dead, monkeypatch: pytest.MonkeyPatch
) -> None:
    (event,) = await dead(inbox, signed, "evt_1")
    monkeypatch.delenv("STRIPE_SECRET")
    assert (await tool.replay(event))[0] == 1
    assert await inbox.status("evt_1") == "dead_letter"
    assert (await tool.replay(event, "--unverified"))[0] == 0
    assert await inbox.status("evt_1") == "pending"


async def test_a_canary_that_does_not_verify_stops_the_rest(
    inbox: SqlInbox, signed: UUID, tool: Dead
) -> None:
    first, second = await dead(inbox, signed, "evt_1", "evt_2")
    await spoil(inbox, "evt_1")
    code, told = await tool.replay(first, second, "--canary", "1", "--wait-s", "1")
    assert (code, told["replayed"], told["stopped"]) == (1, 0, True)
    assert await inbox.status("evt_2") == "dead_letter"
