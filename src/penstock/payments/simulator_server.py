"""The simulator behind HTTP, so that rails in other processes share its books.

`POST /transfers` with an `Idempotency-Key` pays; `GET /transfers/KEY` asks. Needs the extra `http`.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID

from aiohttp import web

from penstock.payments.instruction import Instruction
from penstock.payments.simulator import Lost, Simulator, Unreachable

_STATUSES = {"PAID": 200, "BUSY": 429, "REFUSED": 402}


class _Server:
    def __init__(self, simulator: Simulator) -> None:
        self._simulator = simulator

    async def transfer(self, request: web.Request) -> web.StreamResponse:
        document = await request.json()
        instruction = Instruction(
            instruction_id=str(document["instruction_id"]),
            participant_id=str(document.get("participant_id", "")),
            rail="simulator",
            amount=int(document["amount"]),
            currency=str(document["currency"]),
            destination=document["destination"],
        )
        key = UUID(request.headers["idempotency-key"])
        try:
            code, reference = await self._simulator.pay(instruction, key)
        except (Lost, Unreachable):
            # What a client sees of a peer that vanishes: the connection ends without an answer.
            assert request.transport is not None, "a request has a connection"
            request.transport.abort()
            raise web.HTTPInternalServerError from None
        if code == "PAID":
            return web.json_response({"id": reference, "status": code})
        return web.json_response({"error": {"code": code}}, status=_STATUSES[code])

    async def status(self, request: web.Request) -> web.StreamResponse:
        reference = self._simulator.paid(UUID(request.match_info["key"]))
        if reference is None:
            raise web.HTTPNotFound
        return web.json_response({"id": reference, "status": "PAID"})


@asynccontextmanager
async def serving(simulator: Simulator) -> AsyncIterator[str]:
    """Serve on a free local port while the block runs; gives the base URL."""
    server = _Server(simulator)
    app = web.Application()
    app.router.add_post("/transfers", server.transfer)
    app.router.add_get("/transfers/{key}", server.status)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        yield f"http://127.0.0.1:{port}"
    finally:
        await runner.cleanup()
