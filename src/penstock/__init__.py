"""Penstock takes bursts into Postgres and delivers every item to where it must go."""

from penstock.application import Penstock, QueueName
from penstock.kernel.connections import AsyncConn, SyncConn
from penstock.kernel.errors import (
    BadHandler,
    BadPayload,
    DatabaseUnreachable,
    LeaseLost,
    NotInTransaction,
    NotOpened,
    PenstockError,
)
from penstock.kernel.event import Attempt, Batch, Effect, Event
from penstock.kernel.report import WorkReport
from penstock.kernel.settings import Settings
from penstock.kernel.tx import Tx
from penstock.kernel.verdict import Done, Reject, Retry, Unknown, Verdict
from penstock.kernel.version import VERSION
from penstock.outbox.errors import PayloadRefused
from penstock.outbox.model import Json, PublishOptions, Story
from penstock.outbox.topics import Outbox, Topic

Queue = QueueName
__version__ = VERSION

__all__ = [
    "AsyncConn",
    "Attempt",
    "BadHandler",
    "BadPayload",
    "Batch",
    "DatabaseUnreachable",
    "Done",
    "Effect",
    "Event",
    "Json",
    "LeaseLost",
    "NotInTransaction",
    "NotOpened",
    "Outbox",
    "PayloadRefused",
    "Penstock",
    "PenstockError",
    "PublishOptions",
    "Queue",
    "Reject",
    "Retry",
    "Settings",
    "Story",
    "SyncConn",
    "Topic",
    "Tx",
    "Unknown",
    "Verdict",
    "WorkReport",
    "__version__",
]
