"""The configured senders, as this process knows them: all of them, a moment old at most.

All are read at once and unknown names are looked up like known ones, so that the time an answer
takes does not tell which names exist.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

import msgspec

from penstock.inbox.model import Source
from penstock.inbox.providers import Provider, provider
from penstock.kernel.errors import BadSetting, DatabaseUnreachable, NotFound
from penstock.kernel.events import Events, SourceUnusable
from penstock.kernel.references import follow
from penstock.kernel.secrets import Secret

FRESH_S = 2.0
DOUBTED_S = 0.25
BODY_BYTES_DEFAULT = 1024 * 1024

Load = Callable[[], Awaitable[Sequence[Source]]]


class _OwnOptions(msgspec.Struct, frozen=True):
    """Options that are the inbox's own; all others are the scheme's."""

    rate_per_s: float | None = None
    verify_token_refs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Sender:
    """A source with its secrets at hand: its scheme, what verifies it, and its limits."""

    webhook_id: UUID
    name: str
    provider: Provider
    secrets: tuple[Secret, ...]
    tokens: tuple[Secret, ...] = ()
    tolerance_s: int = 300
    body_bytes_max: int = BODY_BYTES_DEFAULT
    rate_per_s: float | None = None


class Sources:
    """Reads the sources when they are asked for and what is known has grown old."""

    def __init__(
        self,
        load: Load,
        *,
        env: Mapping[str, str],
        events: Events,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._load = load
        self._env = env
        self._events = events
        self._clock = clock
        self._known: dict[str, Sender] = {}
        self._complaints: dict[str, str] = {}
        self._read_at = float("-inf")
        self._reading = asyncio.Lock()
        self.body_bytes_max = BODY_BYTES_DEFAULT

    async def find(self, name: str, *, older_than_s: float = FRESH_S) -> Sender | None:
        """The source of that name; read anew if what is known is older than so many seconds.

        While the database is away, what was known before goes on: what it verifies cannot be
        stored anyhow. Raises DatabaseUnreachable when nothing was ever read.
        """
        if self.age_s > older_than_s:
            await self._refresh(older_than_s)
        return self._known.get(name)

    def known(self, name: str) -> Sender | None:
        """The source of that name as it was read last."""
        return self._known.get(name)

    @property
    def age_s(self) -> float:
        """How long ago the sources were read."""
        return self._clock() - self._read_at

    def invalidate(self) -> None:
        """Forget how fresh the knowledge is: the next question reads again."""
        self._read_at = float("-inf")

    async def _refresh(self, older_than_s: float) -> None:
        async with self._reading:
            if self.age_s <= older_than_s:
                return  # another request has read while this one waited
            try:
                rows = await self._load()
            except DatabaseUnreachable:
                if not self._known:
                    raise
                return
            self._take(rows)
            self._read_at = self._clock()

    def _take(self, sources: Sequence[Source]) -> None:
        known: dict[str, Sender] = {}
        complaints: dict[str, str] = {}
        for source in sources:
            if not source.enabled:
                continue
            try:
                known[source.source] = sender_of(source, self._env)
            except (BadSetting, NotFound, ValueError) as error:
                complaints[source.source] = str(error)
        for name, complaint in complaints.items():
            if self._complaints.get(name) != complaint:
                self._events.emit(SourceUnusable(name, complaint))
        self._known, self._complaints = known, complaints
        limits = (sender.body_bytes_max for sender in known.values())
        self.body_bytes_max = max(BODY_BYTES_DEFAULT, *limits, 0)


def scheme_of(name: str, options: Mapping[str, object], public_url: str | None) -> Provider:
    """The scheme of a source, configured; raises NotFound or BadSetting."""
    own = _OwnOptions.__struct_fields__
    given = {key: value for key, value in options.items() if key not in own}
    return provider(name, {**given, "public_url": public_url} if public_url else given)


def sender_of(source: Source, env: Mapping[str, str]) -> Sender:
    """A source made ready; raises BadSetting, NotFound or ValueError where it cannot work."""
    try:
        own = msgspec.convert(source.options, _OwnOptions)
    except msgspec.ValidationError as error:
        raise BadSetting(f"options of source {source.source}: {error}") from None
    scheme = scheme_of(source.provider, source.options, source.public_url)
    secrets = _follow(source.secret_refs, env)
    for secret in secrets:
        scheme.key(secret.reveal())  # a key that cannot be decoded is found here, not at a request
    return Sender(
        webhook_id=source.id,
        name=source.source,
        provider=scheme,
        secrets=secrets,
        tokens=_follow(own.verify_token_refs, env) if own.verify_token_refs else (),
        tolerance_s=source.tolerance_s,
        body_bytes_max=_body_bytes_max(source.max_body, scheme),
        rate_per_s=own.rate_per_s,
    )


def _follow(references: Sequence[str], env: Mapping[str, str]) -> tuple[Secret, ...]:
    """The secrets that can be had; while one is being rotated, the other must go on working."""
    found: list[Secret] = []
    problems: list[str] = []
    for reference in references:
        try:
            found.append(Secret(follow(reference, env)))
        except ValueError as error:
            problems.append(str(error))
    if not found:
        raise ValueError("; ".join(f"a secret {text}" for text in problems) or "it has no secret")
    return tuple(found)


def _body_bytes_max(configured: int, scheme: Provider) -> int:
    """The column's default stands for what the scheme itself needs."""
    if configured == BODY_BYTES_DEFAULT and scheme.body_bytes_max is not None:
        return scheme.body_bytes_max
    return configured
