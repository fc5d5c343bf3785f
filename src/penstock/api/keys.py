"""Public keys of user tokens: a JWKS file, or an address whose answer is kept for a while."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import jwt
import msgspec

from penstock.kernel.errors import MissingExtra, PenstockError
from penstock.kernel.http_errors import DownstreamFailed, NotAuthenticated
from penstock.kernel.settings import Settings

FRESH_S = 600.0
# A token with an unknown key id may be the first after a rotation, or one of many forged ones.
REFRESH_PAUSE_S = 15.0
DOCUMENT_BYTES_MAX = 64 * 1024
KEYS_MAX = 32

_FAMILIES = {
    "RS256": "RSA",
    "RS384": "RSA",
    "RS512": "RSA",
    "ES256": "EC",
    "ES384": "EC",
    "EdDSA": "OKP",
}

Reader = Callable[[], Awaitable[bytes]]


class _KeyDocument(msgspec.Struct):
    keys: list[dict[str, Any]]


class KeySource(Protocol):
    """Finds the public key that a token names."""

    async def find(self, algorithm: str, key_id: str | None) -> jwt.PyJWK:
        """The key for this algorithm and id; raises NotAuthenticated."""
        ...


class KeySet:
    """A JWKS, read when first needed, again when old or when a token names an unknown key."""

    def __init__(self, read: Reader, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._read = read
        self._clock = clock
        self._keys: tuple[Mapping[str, Any], ...] = ()
        self._read_at = float("-inf")
        self._tried_at = float("-inf")
        self._reading = asyncio.Lock()

    async def find(self, algorithm: str, key_id: str | None) -> jwt.PyJWK:
        """The key for this algorithm and id; an unknown id has the document read again, rarely."""
        if self._clock() - self._read_at > FRESH_S:
            await self._refresh()
        found = self._match(algorithm, key_id)
        if found is None:
            await self._refresh()
            found = self._match(algorithm, key_id)
        if found is None:
            raise NotAuthenticated("the token is signed by an unknown key")
        try:
            return jwt.PyJWK(dict(found), algorithm=algorithm)
        except jwt.PyJWTError:
            raise NotAuthenticated("the token is signed by an unusable key") from None

    def _match(self, algorithm: str, key_id: str | None) -> Mapping[str, Any] | None:
        fitting = [key for key in self._keys if _fits(key, algorithm)]
        if key_id is None:
            return fitting[0] if len(fitting) == 1 else None
        return next((key for key in fitting if key.get("kid") == key_id), None)

    async def _refresh(self) -> None:
        async with self._reading:
            if self._clock() - self._tried_at < REFRESH_PAUSE_S:
                return
            self._tried_at = self._clock()
            try:
                document = msgspec.json.decode(await self._read(), type=_KeyDocument)
            except (PenstockError, OSError, msgspec.DecodeError):
                return  # the keys of before stay good; without any, no token is accepted
            self._keys = tuple(document.keys[:KEYS_MAX])
            self._read_at = self._clock()


def _fits(key: Mapping[str, Any], algorithm: str) -> bool:
    """Whether a key may verify this algorithm; secret keys never may, whatever they claim."""
    return (
        key.get("kty") == _FAMILIES.get(algorithm)
        and key.get("use", "sig") == "sig"
        and key.get("alg", algorithm) == algorithm
    )


def key_source(settings: Settings) -> KeySet | None:
    """The keys that the settings name, or None; nothing is read yet."""
    if settings.jwt_jwks_file is not None:
        return KeySet(_from_file(settings.jwt_jwks_file))
    if settings.jwt_jwks_url is not None:
        return KeySet(_from_address(settings.jwt_jwks_url, settings))
    return None


def _from_file(path: Path) -> Reader:
    async def read() -> bytes:
        return await asyncio.to_thread(path.read_bytes)

    return read


def _from_address(url: str, settings: Settings) -> Reader:
    try:
        outgoing = import_module("penstock.kernel.outgoing")
    except ModuleNotFoundError as error:
        raise MissingExtra(
            "keys at an address need aiohttp", todo="pip install 'penstock[http]'"
        ) from error

    async def read() -> bytes:
        # A client per read: this happens every few minutes, and nothing is left to be closed.
        client = outgoing.Outgoing.from_settings(settings)
        try:
            reply = await client.get(url)
        finally:
            await client.close()
        if reply.status != 200 or reply.truncated:
            raise DownstreamFailed(f"the key set answered {reply.status}")
        body: bytes = reply.body
        return body

    return read
