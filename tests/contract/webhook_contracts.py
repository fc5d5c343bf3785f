"""The contract of the inbox, run from outside: real HTTP, a real worker, a real replay.

Started by `tools/run_webhook_contracts.sh` on an empty database that DATABASE_URL names. Leaves a
dump of events and effects and the logs of both processes in the directory it is given, and ends
with `Contract tests passed.`; any broken assertion ends it with 1.
"""

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import asyncpg

from penstock.inbox import store
from penstock.inbox.metrics import exposition
from penstock.kernel.schema import migrate, select_products
from penstock.testing import signed

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "webhook_receiver"
SECRET = "whsec_only_for_contract_tests"
WITHIN_S = 40.0
DUMPS = {
    "webhook_events.json": """select id, webhook_id, event_id, event_type, status, attempts,
        total_attempts, replay_count, error_code, received_at, processed_at
        from webhook_events order by seq""",
    "webhook_side_effects.json": "select * from webhook_side_effects order by created_at",
    "audit_logs.json": "select at, operation, operator, reason, row_data from audit.audit_logs",
}


class Contract:
    """One run on one database."""

    def __init__(self, conn: Any, port: int, url: str, directory: Path) -> None:
        self._conn = conn
        self._port = port
        self._url = url
        self._directory = directory

    def environment(self) -> dict[str, str]:
        """What the processes are given."""
        paths = [str(EXAMPLE), os.environ.get("PYTHONPATH", "")]
        return {
            **os.environ,
            "DATABASE_URL": self._url,
            "PENSTOCK_DATABASE_URL": self._url,
            "STRIPE_WEBHOOK_SECRET": SECRET,
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "PYTHON": sys.executable,
        }

    def start(self, name: str, *arguments: str) -> "subprocess.Popen[bytes]":
        """Start `penstock …` with its output in a file."""
        with (self._directory / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "penstock", *arguments, "--app", "receiver:ps"],
                env=self.environment(),
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def send(self, event_id: str, **more: object) -> int:
        """Deliver an event as Stripe would; returns the status."""
        body = json.dumps({"id": event_id, "type": "payment_intent.succeeded", **more}).encode()
        headers, content = signed("stripe", SECRET, body)
        return self.post(content, headers)

    def post(self, body: bytes, headers: dict[str, str]) -> int:
        """Deliver bytes; returns the status."""
        url = f"http://127.0.0.1:{self._port}/webhooks/stripe"
        request = urllib.request.Request(url, body, headers, method="POST")
        try:
            with urllib.request.urlopen(request, timeout=10) as reply:
                return int(reply.status)
        except urllib.error.HTTPError as error:
            return error.code

    async def serving(self) -> None:
        """Wait until the server takes connections."""

        async def look() -> bool:
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", self._port)) == 0

        await until(look, "the server listens")

    async def becomes(self, event_id: str, status: str) -> None:
        """Wait until an event has a status."""

        async def look() -> bool:
            query = "select status::text from webhook_events where event_id = $1"
            return bool(await self._conn.fetchval(query, event_id) == status)

        await until(look, f"{event_id} becomes {status}")

    async def effects(self, event_id: str) -> int:
        """How often an event took effect."""
        query = "select count(*) from webhook_side_effects where event_id = $1"
        return int(await self._conn.fetchval(query, event_id))

    async def counter(self, metric: str) -> int:
        """A counter over all labels."""
        return sum(one.total for one in await store.counters(self._conn) if one.metric == metric)

    async def run(self) -> None:
        """The contract, step by step."""
        await self.serving()
        print("an event is received, handled once, and known when it comes again")
        assert self.send("evt-1") == 200
        await self.becomes("evt-1", "success")
        assert self.send("evt-1") == 200
        assert await self.effects("evt-1") == 1

        print("a forged event is refused and leaves no row")
        assert self.post(b'{"id": "evt-2"}', {"stripe-signature": "t=1,v1=00"}) == 401
        assert not await self._conn.fetchval(
            "select exists (select from webhook_events where event_id = 'evt-2')"
        )

        print("a failing event is dead after exactly five attempts")
        await self._conn.execute("insert into broken_handlers values ('evt-fail')")
        before = await self.counter("dead_letter")
        assert self.send("evt-fail", fail=True) == 200
        await self.becomes("evt-fail", "dead_letter")
        row = await self._conn.fetchrow("select * from webhook_events where event_id = 'evt-fail'")
        assert (row["attempts"], row["error_code"]) == (5, "max_attempts_exceeded")
        assert await self.counter("dead_letter") == before + 1
        assert await self.effects("evt-fail") == 0

        print("after the fix its replay takes effect once, with an audit row")
        await self._conn.execute("delete from broken_handlers")
        await self.replay("--event-id", "evt-fail", "--operator", "contract")
        await self.becomes("evt-fail", "success")
        assert await self.effects("evt-fail") == 1
        audited = "select count(*) from audit.audit_logs where operation = 'replay'"
        assert await self._conn.fetchval(audited) == await self.counter("replay") == 1

    async def replay(self, *arguments: str) -> None:
        """Run the operator's tool."""
        tool = str(ROOT / "tools" / "webhook_replay.sh")
        ran = await asyncio.to_thread(
            subprocess.run, [tool, *arguments], env=self.environment(), timeout=30, check=False
        )
        assert ran.returncode == 0, f"webhook_replay.sh ended with {ran.returncode}"

    async def leave_dumps(self) -> None:
        """Write what CI keeps."""
        for name, query in DUMPS.items():
            rows = [dict(row) for row in await self._conn.fetch(query)]
            (self._directory / name).write_text(json.dumps(rows, default=str, indent=1))
        text = exposition(await store.counters(self._conn))
        (self._directory / "metrics.txt").write_text(text)
        print(text)


async def until(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    """Return as soon as the condition holds; fail when it does not in time."""
    deadline = time.monotonic() + WITHIN_S
    while not await condition():
        assert time.monotonic() < deadline, f"not within {WITHIN_S} s: {what}"
        await asyncio.sleep(0.05)


async def prepare(conn: Any, url: str) -> None:
    """Install the schema, register the source, and shorten the waits between attempts."""
    await migrate(url, products=select_products(only="inbox"))
    sys.path.insert(0, str(EXAMPLE))
    os.environ.setdefault("PENSTOCK_DATABASE_URL", url)
    await conn.execute(__import__("receiver").SETUP)
    reference = ["env:STRIPE_WEBHOOK_SECRET"]
    await store.put_source(conn, "stripe", "stripe", reference, "{}", "contract tests", None)
    quick = "update penstock.queue_config set backoff_base_s = 0.02 where queue = 'inbox'"
    await conn.execute(quick)


async def main(directory: Path) -> None:
    """Run the contract on the database that DATABASE_URL names."""
    url = os.environ["DATABASE_URL"]
    conn = await asyncpg.connect(url)
    await prepare(conn, url)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    contract = Contract(conn, port, url, directory)
    processes = [
        contract.start("server", "serve", "--port", str(port)),
        contract.start("worker", "work", "--only", "inbox"),
    ]
    try:
        await contract.run()
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(30)
        await contract.leave_dumps()
        await conn.close()
    print("Contract tests passed.")


if __name__ == "__main__":
    kept = Path(sys.argv[1] if len(sys.argv) > 1 else "webhook-contracts")
    kept.mkdir(parents=True, exist_ok=True)
    asyncio.run(main(kept))
