"""Events to a function in the same database: called in the transaction that finishes them.

So the function's changes and the end of the delivery are one commit, and each event has exactly one
effect. That makes it a handler with a transaction and not a sink: nothing leaves the database.
"""

from typing import Annotated, Any

import msgspec

from penstock.kernel.codec import decoder
from penstock.kernel.event import Batch
from penstock.kernel.handlers import Options, Registration
from penstock.kernel.injection import Resources, plan_for
from penstock.kernel.tx import Tx
from penstock.outbox import store
from penstock.outbox.envelope import Envelope
from penstock.outbox.sinks.config import Form, body_of, config_of
from penstock.outbox.sinks.sink import Destination

KIND = "sql"
ATTEMPTS_MAX = 1000  # the queue's own row decides


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a destination of this kind may say: the function, and how it is called."""

    function: Annotated[str, msgspec.Meta(pattern=r"^[^.\s]{1,63}\.[^.\s]{1,63}$")]
    format: Form = "envelope"
    batch: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 100
    timeout_s: Annotated[float, msgspec.Meta(ge=0.1, le=300)] = 30.0


def registration(destination: Destination, *, source: str) -> Registration:
    """The handler of a destination, to be bound like any other; raises BadSetting.

    A batch is one statement and one commit. If one call in it raises, all are undone and each event
    is tried by itself.
    """
    config = config_of(destination, Config)

    async def call(events: Batch[Any], tx: Tx) -> None:
        bodies = [body_of(Envelope.of(event, source=source), config.format)[0] for event in events]
        await store.call_function(tx, config.function, b"[" + b",".join(bodies) + b"]")

    return Registration(
        destination.name,
        call,
        plan_for(call, Resources(), batch=True),
        decoder(msgspec.Raw),  # it is passed on as it is
        Options(destination.concurrency, config.batch, config.timeout_s, ATTEMPTS_MAX),
        destination.name,
    )
