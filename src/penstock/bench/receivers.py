"""The two servers that `bench inbox` compares, each a process of its own.

`python -m penstock.bench.receivers KIND FD` serves on an inherited socket. The plain one is what
one writes by hand: FastAPI, the signature checked, one insert per request.
"""

import hashlib
import hmac
import json
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import uvicorn
from starlette.types import ASGIApp

from penstock.api.hot import HotProtocol
from penstock.api.mount import Mounted
from penstock.application import Penstock

KEY_VARIABLE = "PENSTOCK_TEST_BENCH_KEY"
URL_VARIABLE = "PENSTOCK_TEST_BENCH_URL"
PLAIN_TABLE = """
create table if not exists bench_events (
    event_id text primary key, payload jsonb not null, raw_body bytea not null,
    received_at timestamptz not null default now())
"""
_INSERT = """
insert into bench_events (event_id, payload, raw_body) values ($1, $2, $3) on conflict do nothing
"""


def ours(url: str) -> ASGIApp:
    """The inbox's route as `penstock serve` has it."""
    return Mounted(Penstock(url), only=frozenset({"inbox"}))


def plain(url: str) -> ASGIApp:
    """A handler as one writes it by hand."""
    from fastapi import FastAPI, Request, Response

    secret = os.environ[KEY_VARIABLE].encode()
    pools: list[asyncpg.Pool[asyncpg.Record]] = []

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        async with asyncpg.create_pool(url, min_size=10, max_size=10) as pool:
            pools.append(pool)
            yield

    app = FastAPI(lifespan=lifespan)

    async def receive(request: Request) -> Response:
        body = await request.body()
        parts = dict(part.split("=", 1) for part in request.headers["stripe-signature"].split(","))
        expected = hmac.new(secret, parts["t"].encode() + b"." + body, hashlib.sha256).hexdigest()
        if not hmac.compare_digest(expected, parts["v1"]):
            return Response(status_code=401)
        event = json.loads(body)
        await pools[0].execute(_INSERT, event["id"], body.decode(), body)
        return Response(status_code=200)

    app.add_api_route("/webhooks/stripe", receive, methods=["POST"])
    return app


def main(kind: str, descriptor: str) -> None:
    """Serve until the process is ended."""
    url = os.environ[URL_VARIABLE]
    app = ours(url) if kind == "ours" else plain(url)
    config = uvicorn.Config(
        app,
        http=HotProtocol if kind == "ours" else "auto",
        lifespan="on",
        log_level="warning",
        access_log=False,
        proxy_headers=False,
    )
    taken = socket.socket(fileno=int(descriptor))
    uvicorn.Server(config).run(sockets=[taken])


if __name__ == "__main__":
    main(*sys.argv[1:3])
