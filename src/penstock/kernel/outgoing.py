"""Calls other systems over HTTP. Needs the extra `http`; nothing else imports aiohttp.

The guard sits where connections are made: the address that was resolved is the address that is
checked and connected to, so a name that changes its mind in between gains nothing. No redirects,
no proxies from the environment, no cookies, no decompression; time and size are bounded.
"""

import socket
import time
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from types import SimpleNamespace

import aiohttp
from aiohttp import TraceConnectionCreateEndParams, TraceConnectionReuseconnParams
from aiohttp.abc import AbstractResolver

from penstock.kernel.addresses import AddressPolicy, Target
from penstock.kernel.http_errors import AddressRefused, DownstreamFailed
from penstock.kernel.replies import Reply
from penstock.kernel.secrets import Secret
from penstock.kernel.settings import Settings
from penstock.kernel.signing import signature_headers
from penstock.kernel.version import VERSION

REPLY_BYTES_MAX = 64 * 1024
CONNECT_TIMEOUT_S = 5.0
CONNECTIONS_PER_HOST_MAX = 64


@dataclass(slots=True)
class _Call:
    """One call under way: what it may reach, and what was learnt while connecting."""

    target: Target
    refused: str | None = None
    connected: bool = False


_current: ContextVar[_Call] = ContextVar("penstock_outgoing_call")


@dataclass(frozen=True, slots=True)
class CallLimits:
    """Bounds of one call."""

    timeout_s: float = 10.0
    reply_bytes_max: int = REPLY_BYTES_MAX


class Outgoing:
    """A guarded HTTP client. Opens its session at the first call; `close()` ends it."""

    def __init__(
        self,
        policy: AddressPolicy,
        *,
        secrets: Sequence[Secret] = (),
        limits: CallLimits | None = None,
        resolver: AbstractResolver | None = None,
    ) -> None:
        self.policy = policy
        self.limits = limits or CallLimits()
        self._secrets = tuple(secrets)
        self._resolver = resolver
        self._session: aiohttp.ClientSession | None = None

    @classmethod
    def from_settings(cls, settings: Settings) -> "Outgoing":
        """The client that a process's settings describe."""
        secret = settings.http_signing_secret
        return cls(
            AddressPolicy.allowing(settings.http_allow_private),
            secrets=(secret,) if secret else (),
            limits=CallLimits(timeout_s=settings.http_timeout_s),
        )

    async def close(self) -> None:
        """Close the session and its connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def post(
        self, url: str, body: bytes, *, message_id: str, headers: Mapping[str, str]
    ) -> Reply:
        """Send a signed message and return the answer, whatever its status.

        Raises AddressRefused before anything is sent, DownstreamFailed when no answer came.
        """
        signed = signature_headers(
            self._secrets, message_id=message_id, timestamp_s=int(time.time()), body=body
        )
        return await self._call("POST", url, body=body, headers={**headers, **signed})

    async def get(self, url: str, headers: Mapping[str, str] | None = None) -> Reply:
        """Fetch a document such as a key set; the same guard and limits apply."""
        asked = {"accept": "application/json", **(headers or {})}
        return await self._call("GET", url, body=None, headers=asked)

    async def _call(
        self, method: str, url: str, *, body: bytes | None, headers: Mapping[str, str]
    ) -> Reply:
        call = _Call(self.policy.check_url(url))
        restore = _current.set(call)
        try:
            async with self._open().request(
                method,
                url,
                data=body,
                headers=headers,
                allow_redirects=False,
                trace_request_ctx=call,
            ) as response:
                return await self._read(response)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise _failure(call, error) from error
        finally:
            _current.reset(restore)

    async def _read(self, response: aiohttp.ClientResponse) -> Reply:
        cap = self.limits.reply_bytes_max
        body = bytearray()
        async for chunk in response.content.iter_any():
            body += chunk
            if len(body) > cap:
                response.close()  # the rest is not wanted, so this connection is not reused
                break
        headers = {name.lower(): value for name, value in response.headers.items()}
        return Reply(response.status, headers, bytes(body[:cap]), truncated=len(body) > cap)

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit_per_host=CONNECTIONS_PER_HOST_MAX,
                    use_dns_cache=False,
                    resolver=self._resolver,
                    socket_factory=self._socket,
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
                auto_decompress=False,
                requote_redirect_url=False,
                headers={"user-agent": f"penstock/{VERSION}", "accept-encoding": "identity"},
                timeout=aiohttp.ClientTimeout(
                    total=self.limits.timeout_s,
                    connect=min(CONNECT_TIMEOUT_S, self.limits.timeout_s),
                ),
                read_bufsize=REPLY_BYTES_MAX,
                trace_configs=[_trace()],
            )
        return self._session

    def _socket(self, address: aiohttp.AddrInfoType) -> socket.socket:
        family, kind, protocol, _, sockaddr = address
        call = _current.get()
        reason = self.policy.check_connection(call.target, str(sockaddr[0]))
        if reason is not None:
            call.refused = reason
            raise OSError(reason)
        return socket.socket(family=family, type=kind, proto=protocol)


def _trace() -> aiohttp.TraceConfig:
    """Tells whether a connection was had: only then can anything have been sent."""
    trace = aiohttp.TraceConfig()

    async def created(
        _session: aiohttp.ClientSession,
        context: SimpleNamespace,
        _params: TraceConnectionCreateEndParams,
    ) -> None:
        context.trace_request_ctx.connected = True

    async def reused(
        _session: aiohttp.ClientSession,
        context: SimpleNamespace,
        _params: TraceConnectionReuseconnParams,
    ) -> None:
        context.trace_request_ctx.connected = True

    trace.on_connection_create_end.append(created)
    trace.on_connection_reuseconn.append(reused)
    return trace


def _failure(call: _Call, error: Exception) -> AddressRefused | DownstreamFailed:
    if not call.connected and call.refused is not None:
        return AddressRefused(call.refused)
    if isinstance(error, aiohttp.InvalidURL):
        return AddressRefused("the URL is malformed")
    # The text of these errors may quote the whole URL, whose path or query can hold a token.
    kind = "TIMEOUT" if isinstance(error, TimeoutError) else "NETWORK"
    return DownstreamFailed(
        f"{call.target.host}: {type(error).__name__}", sent=call.connected, kind=kind
    )
