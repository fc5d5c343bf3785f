"""Shows one Stripe event taking effect once, and a dead letter replayed. Needs nothing installed.

    python examples/webhook_receiver/run.py

Starts a Postgres of its own, serves the receiver in this process, and sends signed requests to it.
"""

import asyncio
import logging
import os
import secrets
import socket
import sys
import time
from pathlib import Path

import asyncpg
import uvicorn

from penstock.inbox import store
from penstock.kernel.outgoing import Outgoing
from penstock.kernel.schema import migrate, select_products
from penstock.kernel.settings import load_settings
from penstock.postgres import throwaway_cluster
from penstock.testing import signed

sys.path.insert(0, str(Path(__file__).parent))
SECRET = f"whsec_{secrets.token_hex(16)}"
QUICK = "update penstock.queue_config set backoff_base_s = 0.02 where queue = 'inbox'"


def say(text: str) -> None:
    print(text, flush=True)


async def until(conn: "asyncpg.Connection[asyncpg.Record]", event_id: str, status: str) -> None:
    """Wait until an event has a status; fail after a while."""
    deadline = time.monotonic() + 20
    query = "select status::text from webhook_events where event_id = $1"
    while (found := await conn.fetchval(query, event_id)) != status:
        assert time.monotonic() < deadline, f"{event_id} is {found}, not {status}"
        await asyncio.sleep(0.02)


async def show(conn: "asyncpg.Connection[asyncpg.Record]", port: int) -> None:
    client = Outgoing.from_settings(load_settings({"PENSTOCK_HTTP_ALLOW_PRIVATE": "127.0.0.1"}))
    url = f"http://127.0.0.1:{port}/webhooks/stripe"

    async def send(body: bytes) -> int:
        headers, content = signed("stripe", SECRET, body)
        return (await client.post(url, content, message_id="example", headers=headers)).status

    try:
        good = b'{"id": "evt_1", "type": "payment_intent.succeeded", "data": {}}'
        answers = [await send(good) for _ in range(3)]
        await until(conn, "evt_1", "success")
        count = await conn.fetchval("select count(*) from webhook_side_effects")
        say(f"evt_1   sent 3 times, answers {answers}   ->   success, {count} effect")

        await conn.execute("insert into broken_handlers values ('evt_2')")
        await send(b'{"id": "evt_2", "type": "payment_intent.succeeded", "fail": true}')
        await until(conn, "evt_2", "dead_letter")
        row = await conn.fetchrow("select * from webhook_events where event_id = 'evt_2'")
        assert row is not None
        say(f"evt_2   handler broken   ->   dead after {row['attempts']} attempts")

        await conn.execute("delete from broken_handlers")
        ((_, audit_id),) = await store.replay(conn, [row["id"]], "handler fixed", "example", None)
        await until(conn, "evt_2", "success")
        count = await conn.fetchval("select count(*) from webhook_side_effects")
        say(f"evt_2   fixed and replayed (audit {audit_id})   ->   success, {count} effects in all")
        assert count == 2
    finally:
        await client.close()


async def main(database: str) -> None:
    say("a Postgres of its own is up; installing the inbox")
    await migrate(database, products=select_products(only="inbox"))
    os.environ["PENSTOCK_DATABASE_URL"] = database
    os.environ["STRIPE_WEBHOOK_SECRET"] = SECRET
    receiver = __import__("receiver")
    conn: asyncpg.Connection[asyncpg.Record] = await asyncpg.connect(database)
    await conn.execute(receiver.SETUP)
    await conn.execute(QUICK)
    reference = ["env:STRIPE_WEBHOOK_SECRET"]
    await store.put_source(conn, "stripe", "stripe", reference, "{}", "example", None)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        # The worker lives in the web server's process: lifespan(work=...) starts it.
        served = receiver.ps.asgi(only={"inbox"})
        config = uvicorn.Config(served, lifespan="off", log_level="warning")
        server = uvicorn.Server(config)
        async with receiver.ps.lifespan(work={"inbox"})(None):
            task = asyncio.create_task(server.serve(sockets=[taken]))
            try:
                await show(conn, port)
            finally:
                server.should_exit = True
                await task
    await conn.close()


if __name__ == "__main__":
    # The broken handler is broken on purpose; its traceback would only be in the way.
    logging.getLogger("penstock").addHandler(logging.NullHandler())
    with throwaway_cluster() as cluster:
        asyncio.run(main(cluster.url()))
    say("done")
