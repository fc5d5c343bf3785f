"""The guarded client against a real server on this machine."""

import asyncio
import base64
import hmac
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from hashlib import sha256
from time import monotonic

import pytest
from aiohttp import web
from aiohttp.abc import AbstractResolver, ResolveResult

from penstock.kernel.addresses import AddressPolicy
from penstock.kernel.http_errors import AddressRefused, DownstreamFailed
from penstock.kernel.outgoing import CallLimits, Outgoing
from penstock.kernel.secrets import Secret

HERE = AddressPolicy.allowing(["127.0.0.0/8"])
BIG = 200 * 1024 * 1024


@dataclass
class Downstream:
    """A server that misbehaves on request and remembers what it was sent."""

    port: int = 0
    requests: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    streamed: int = 0

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    async def answer(self, request: web.Request) -> web.StreamResponse:
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.requests.append((request.path, headers, await request.read()))
        match request.path:
            case "/redirect":
                return web.Response(status=302, headers={"location": self.url("/elsewhere")})
            case "/big":
                return await self._stream(request, chunk=b"x" * 65536, pause_s=0)
            case "/trickle":
                return await self._stream(request, chunk=b"x", pause_s=0.05)
            case "/silent":
                await asyncio.sleep(30)
            case "/cut":
                assert request.transport is not None
                request.transport.close()
            case "/cookie":
                return web.Response(headers={"set-cookie": "a=b"})
            case _:
                pass
        return web.Response(text="ok")

    async def _stream(
        self, request: web.Request, *, chunk: bytes, pause_s: float
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-length": str(BIG)})
        await response.prepare(request)
        try:
            while self.streamed < BIG:
                await response.write(chunk)
                self.streamed += len(chunk)
                await asyncio.sleep(pause_s)
        except (ConnectionError, OSError):
            pass
        return response


@pytest.fixture
async def downstream() -> AsyncIterator[Downstream]:
    served = Downstream()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", served.answer)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    served.port = runner.addresses[0][1]
    yield served
    await runner.cleanup()


@pytest.fixture
async def allowed() -> AsyncIterator[Outgoing]:
    client = Outgoing(HERE, limits=CallLimits(timeout_s=1.0))
    yield client
    await client.close()


async def test_a_private_address_is_refused_and_nothing_is_sent(downstream: Downstream) -> None:
    client = Outgoing(AddressPolicy())
    for host in ("127.0.0.1", "localhost", "[::1]", "0.0.0.0", "[::ffff:127.0.0.1]", "0x7f.1"):
        for scheme in ("http", "https"):
            with pytest.raises((AddressRefused, DownstreamFailed)):
                await client.get(f"{scheme}://{host}:{downstream.port}/")
    await client.close()
    assert downstream.requests == []


class Rebinding(AbstractResolver):
    """A name server that answers with a private address for every name."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        return [
            ResolveResult(
                hostname=host, host="127.0.0.1", port=port, family=socket.AF_INET, proto=0, flags=0
            )
        ]

    async def close(self) -> None:
        """Nothing is open."""


async def test_a_name_that_resolves_to_a_private_address_is_refused(
    downstream: Downstream,
) -> None:
    policy = AddressPolicy(ports=frozenset({downstream.port}))
    client = Outgoing(policy, resolver=Rebinding())
    with pytest.raises(AddressRefused, match=r"127\.0\.0\.1"):
        await client.get(f"https://public.example:{downstream.port}/")
    await client.close()
    assert downstream.requests == []


async def test_an_allowed_network_is_reached_and_the_message_is_signed(
    downstream: Downstream,
) -> None:
    key = b"k" * 24
    client = Outgoing(HERE, secrets=[Secret("whsec_" + base64.b64encode(key).decode())])
    reply = await client.post(
        downstream.url("/commit"),
        b'{"a":1}',
        message_id="res-1",
        headers={"content-type": "application/json", "x-idempotency-key": "slot-1"},
    )
    await client.close()
    assert (reply.status, reply.body) == (200, b"ok")
    _, headers, body = downstream.requests[0]
    signed = f"res-1.{headers['webhook-timestamp']}.".encode() + body
    wanted = base64.b64encode(hmac.digest(key, signed, sha256)).decode()
    assert headers["webhook-signature"] == f"v1,{wanted}"
    assert headers["webhook-id"] == "res-1"
    assert headers["x-idempotency-key"] == "slot-1"


async def test_a_redirect_is_not_followed(downstream: Downstream, allowed: Outgoing) -> None:
    reply = await allowed.get(downstream.url("/redirect"))
    assert reply.status == 302
    assert [path for path, _, _ in downstream.requests] == ["/redirect"]


async def test_a_huge_reply_is_read_up_to_the_cap_only(
    downstream: Downstream, allowed: Outgoing
) -> None:
    reply = await allowed.get(downstream.url("/big"))
    assert reply.truncated
    assert len(reply.body) == allowed.limits.reply_bytes_max
    assert downstream.streamed < BIG / 4


async def test_a_trickling_reply_is_cut_off_at_the_time_limit(
    downstream: Downstream, allowed: Outgoing
) -> None:
    started = monotonic()
    with pytest.raises(DownstreamFailed) as caught:
        await allowed.get(downstream.url("/trickle"))
    assert monotonic() - started < 3
    assert (caught.value.kind, caught.value.sent) == ("TIMEOUT", True)


@pytest.mark.parametrize(("path", "kind"), [("/silent", "TIMEOUT"), ("/cut", "NETWORK")])
async def test_no_answer_after_sending_says_that_it_was_sent(
    downstream: Downstream, allowed: Outgoing, path: str, kind: str
) -> None:
    with pytest.raises(DownstreamFailed) as caught:
        await allowed.post(downstream.url(path), b"{}", message_id="m", headers={})
    assert (caught.value.kind, caught.value.sent) == (kind, True)


async def test_a_closed_port_says_that_nothing_was_sent(allowed: Outgoing) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(DownstreamFailed) as caught:
        await allowed.post(f"http://127.0.0.1:{port}/", b"{}", message_id="m", headers={})
    assert not caught.value.sent
    assert f":{port}" not in caught.value.what


async def test_cookies_and_proxies_of_the_environment_are_ignored(
    downstream: Downstream, allowed: Outgoing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    await allowed.get(downstream.url("/cookie"))
    reply = await allowed.get(downstream.url("/again"))
    assert reply.status == 200
    assert all("cookie" not in headers for _, headers, _ in downstream.requests)
