"""`tools/webhook_replay.sh` as operators run it: a process, its options, its exit codes."""

import asyncio
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import pytest
from tests.support.inbox import Connection, SqlInbox, arrival

from penstock.inbox import replay
from penstock.inbox.providers import provider

TOOL = Path(__file__).parents[3] / "tools" / "webhook_replay.sh"
SECRET = "whsec_canary_of_the_replay"
DROP = "'; DROP TABLE webhook_events; --"


@dataclass(frozen=True, slots=True)
class Ran:
    """What a run ended with and said."""

    code: int
    out: str


class Tool:
    """What the script runs, in this process: a process of its own takes seconds to start."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._capsys = capsys
        self._monkeypatch = monkeypatch

    async def run(self, *arguments: str, **environ: str) -> Ran:
        """Run it once, with some variables changed."""
        for name, value in environ.items():
            self._monkeypatch.setenv(name, value)
        try:
            code = await asyncio.to_thread(replay.main, arguments)
        except SystemExit as ended:
            code = int(str(ended.code))
        said = self._capsys.readouterr()
        return Ran(code, said.out + said.err)


@pytest.fixture
def tool(
    database_url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Tool:
    for name in ("PENSTOCK_DATABASE_URL", "DB_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DATABASE_URL", database_url)
    monkeypatch.setenv("STRIPE_SECRET", SECRET)
    return Tool(capsys, monkeypatch)


@pytest.fixture
async def signed_source(inbox: SqlInbox) -> UUID:
    return await inbox.source("signed", secret_refs=["env:STRIPE_SECRET"])


async def dead(inbox: SqlInbox, webhook_id: UUID, event_id: str, *, sign: bool = True) -> UUID:
    body = f'{{"id": "{event_id}", "type": "t"}}'
    now_s = int((await inbox.conn.fetchval("select penstock.clock()")).timestamp())
    header = provider("stripe").sign(SECRET, body.encode(), at_s=now_s)["stripe-signature"]
    event = arrival(
        webhook_id,
        event_id,
        body,
        signature=header if sign else None,
        headers=f'{{"stripe-signature": "{header}"}}',
    )
    assert await inbox.receive(event) == ["stored"]
    await inbox.fail(await inbox.claim(), "reject")
    return event.id


async def audits(conn: Connection) -> list[tuple[str, str]]:
    query = "select operation, operator from audit.audit_logs order by at"
    rows = await conn.fetch(query)
    return [(row["operation"], row["operator"]) for row in rows]


async def test_a_genuine_dead_letter_is_replayed_with_its_audit_row(
    inbox: SqlInbox, signed_source: UUID, tool: Tool
) -> None:
    event = await dead(inbox, signed_source, "evt_1")
    ran = await tool.run("--event-id", "evt_1", "--operator", "ada", "--reason", "fixed")
    assert (ran.code, "Replay complete." in ran.out) == (0, True), ran.out
    assert (await inbox.row(event))["status"] == "pending"
    assert await audits(inbox.conn) == [("verify", "ada"), ("replay", "ada")]
    assert SECRET not in ran.out


async def test_a_dry_run_changes_nothing(inbox: SqlInbox, signed_source: UUID, tool: Tool) -> None:
    await dead(inbox, signed_source, "evt_1")
    ran = await tool.run("--webhook-id", str(signed_source), "--dry-run")
    assert (ran.code, "evt_1" in ran.out) == (0, True), ran.out
    assert await inbox.status("evt_1") == "dead_letter"
    assert await audits(inbox.conn) == []


async def test_bytes_that_no_longer_verify_are_left_out(
    inbox: SqlInbox, signed_source: UUID, tool: Tool
) -> None:
    event = await dead(inbox, signed_source, "evt_1")
    await inbox.conn.execute("update webhook_events set raw_body = raw_body || ' '")
    ran = await tool.run("--event-id", "evt_1")
    assert (ran.code, await inbox.status("evt_1")) == (3, "dead_letter")
    assert (await tool.run("--event-id", "evt_1", "--unverified")).code == 0
    assert (await inbox.row(event))["status"] == "pending"


async def test_without_its_secret_nothing_is_replayed(
    inbox: SqlInbox, signed_source: UUID, tool: Tool
) -> None:
    await dead(inbox, signed_source, "evt_1")
    assert (await tool.run("--event-id", "evt_1", STRIPE_SECRET="")).code == 3
    assert await inbox.status("evt_1") == "dead_letter"


async def test_hostile_arguments_are_data_or_wrong_usage(
    inbox: SqlInbox, signed_source: UUID, tool: Tool
) -> None:
    await dead(inbox, signed_source, "evt_1")
    for more in ((), ("--dry-run",)):
        ran = await tool.run("--event-id", DROP, *more)
        assert (ran.code, "rows: 0" in ran.out) == (0, True), ran.out
        assert (await tool.run("--event-id", "evt_1", "--limit", "1; select", *more)).code == 1
        assert (await tool.run("--webhook-id", DROP, *more)).code == 1
    assert await inbox.status("evt_1") == "dead_letter"


async def test_wrong_usage_is_1_and_no_database_is_2(tool: Tool) -> None:
    for arguments in ((), ("--limit", "5"), ("--event-id", "x", "--nonsense"), ("--operator", "")):
        assert (await tool.run(*arguments)).code == 1
    assert (await tool.run("--event-id", "x", DATABASE_URL="")).code == 2
    away = "postgresql://nobody@127.0.0.1:1/none"
    assert (await tool.run("--event-id", "x", DATABASE_URL=away)).code == 2


async def test_an_event_id_of_two_webhooks_needs_the_webhook(
    inbox: SqlInbox, signed_source: UUID, tool: Tool
) -> None:
    other = await inbox.source("other")
    await dead(inbox, signed_source, "evt_1")
    await dead(inbox, other, "evt_1", sign=False)
    assert (await tool.run("--event-id", "evt_1")).code == 1
    assert (await tool.run("--event-id", "evt_1", "--webhook-id", str(other))).code == 0
    rows = await inbox.conn.fetch("select webhook_id from webhook_events where status = 'pending'")
    assert [row["webhook_id"] for row in rows] == [other]


async def test_a_cutoff_date_and_a_limit_narrow_it(
    inbox: SqlInbox, signed_source: UUID, tool: Tool
) -> None:
    await dead(inbox, signed_source, "evt_1")
    await dead(inbox, signed_source, "evt_2")
    assert (await tool.run("--source", "signed", "--cutoff-date", "2001-01-01")).code == 0
    assert await audits(inbox.conn) == []
    assert (await tool.run("--source", "signed", "--after", "2001-01-01", "--limit", "1")).code == 0
    assert (await inbox.status("evt_1"), await inbox.status("evt_2")) == ("pending", "dead_letter")


async def test_the_script_passes_everything_on(inbox: SqlInbox, database_url: str) -> None:
    source = await inbox.source("plain")
    await dead(inbox, source, "evt 1", sign=False)

    def run(*arguments: str) -> int:
        environ = {**os.environ, "DATABASE_URL": database_url, "PYTHON": sys.executable}
        return subprocess.run([str(TOOL), *arguments], env=environ, timeout=30).returncode

    assert run("--nonsense") == 1
    assert run("--event-id", "evt 1", "--reason", "two words") == 0
    assert await inbox.status("evt 1") == "pending"
