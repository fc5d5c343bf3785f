"""Events on standard output, one JSON envelope per line: to see what would be sent."""

import asyncio
import sys
from collections.abc import Sequence
from typing import TextIO

import msgspec

from penstock.kernel.settings import Settings
from penstock.kernel.verdict import DONE, Verdict
from penstock.outbox.sinks.config import Form, body_of, config_of
from penstock.outbox.sinks.sink import Delivery, Destination


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a destination of this kind may say."""

    format: Form = "envelope"


class StdoutSink:
    """Writes whole lines, and a batch at once, so that lines of several workers do not mix."""

    size = 100

    def __init__(self, form: Form = "envelope", *, stream: TextIO | None = None) -> None:
        self._form = form
        self._stream = stream

    async def open(self) -> None:
        """There is nothing to open."""

    async def deliver(self, deliveries: Sequence[Delivery]) -> Sequence[Verdict]:
        """Write them and flush; done when the other end of the pipe has them."""
        lines = b"".join(body_of(d.envelope, self._form)[0] + b"\n" for d in deliveries)
        # In a thread: a reader that has stopped must not stop the leases of everything else.
        await asyncio.to_thread(self._write, lines.decode())
        return [DONE] * len(deliveries)

    def _write(self, text: str) -> None:
        stream = sys.stdout if self._stream is None else self._stream
        stream.write(text)
        stream.flush()

    async def close(self) -> None:
        """There is nothing to close: standard output is not ours."""


def make(destination: Destination, settings: Settings) -> StdoutSink:
    """The sink of a destination."""
    del settings
    return StdoutSink(config_of(destination, Config).format)
