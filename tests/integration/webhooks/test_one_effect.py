"""From the door to the effect: however often an event is sent or forged, it has one effect."""

import asyncio
import os
import subprocess
import sys
from typing import Any

from tests.support.providers import CASES
from tests.support.sources import ROOT
from tests.support.webhooks import Door

from penstock import Event, Penstock, Tx
from penstock.testing import drain

STRIPE = CASES["stripe"]
EXAMPLE = ROOT / "examples" / "webhook_receiver" / "run.py"


def body_of(note: str) -> bytes:
    return f'{{"id": "evt_1", "type": "charge.succeeded", "note": "{note}"}}'.encode()


async def test_a_hundred_at_once_among_forgeries_have_one_effect(
    door: Door, database_url: str
) -> None:
    await door.conn.execute("create table effects (event_id text, note text)")
    ps = Penstock(database_url)

    @ps.inbox.on("stripe", "charge.*")
    async def note(event: Event[dict[str, Any]], tx: Tx) -> None:
        data = event.data
        await tx.execute("insert into effects values ($1, $2)", data["id"], data["note"])

    early = await door.deliver(STRIPE, body_of("forged"), secret="guessed")
    assert (early.status, await door.count()) == (401, 0)
    genuine = (door.deliver(STRIPE, body_of("genuine")) for _ in range(100))
    forged = (door.deliver(STRIPE, body_of("forged"), secret="guessed") for _ in range(20))
    answers = [answer.status for answer in await asyncio.gather(*genuine, *forged)]
    assert (answers[:100], answers[100:]) == ([200] * 100, [401] * 20)
    assert await door.count() == 1
    assert (await drain(ps, only={"inbox"})).finished == 1
    assert (await door.deliver(STRIPE, body_of("genuine"))).status == 200
    assert (await drain(ps, only={"inbox"})).finished == 0
    rows = await door.conn.fetch("select event_id, note from effects")
    assert [tuple(row) for row in rows] == [("evt_1", "genuine")]


def test_the_example_shows_one_effect_and_a_replay_in_one_command() -> None:
    ran = subprocess.run(
        [sys.executable, str(EXAMPLE)],
        env={name: value for name, value in os.environ.items() if "DATABASE_URL" not in name},
        capture_output=True,
        text=True,
        timeout=55,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "sent 3 times, answers [200, 200, 200]   ->   success, 1 effect" in ran.stdout
    assert "success, 2 effects in all" in ran.stdout
