"""Penstock takes bursts into Postgres and delivers every item to where it must go.

Every name is imported when first asked for, so that `penstock --help` and test suites that only
have the package installed start at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.application import Penstock
    from penstock.application import QueueName as Queue
    from penstock.intake.answers import (
        Busy,
        LimitReached,
        NotOpen,
        ReservationState,
        Reserved,
        SoldOut,
    )
    from penstock.intake.public import Intake
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
    from penstock.outbox.errors import KeyReused, PayloadRefused, SchemaChanged
    from penstock.outbox.model import Json, PublishOptions, Story
    from penstock.outbox.topics import Outbox, Topic
    from penstock.payments.instruction import Instruction
    from penstock.payments.public import Payments
    from penstock.payments.rails import CodeTable, NotSent, Rail, Sent
    from penstock.payments.story import PaymentStory

__all__ = [
    "AsyncConn",
    "Attempt",
    "BadHandler",
    "BadPayload",
    "Batch",
    "Busy",
    "CodeTable",
    "DatabaseUnreachable",
    "Done",
    "Effect",
    "Event",
    "Instruction",
    "Intake",
    "Json",
    "KeyReused",
    "LeaseLost",
    "LimitReached",
    "NotInTransaction",
    "NotOpen",
    "NotOpened",
    "NotSent",
    "Outbox",
    "PayloadRefused",
    "PaymentStory",
    "Payments",
    "Penstock",
    "PenstockError",
    "PublishOptions",
    "Queue",
    "Rail",
    "Reject",
    "ReservationState",
    "Reserved",
    "Retry",
    "SchemaChanged",
    "Sent",
    "Settings",
    "SoldOut",
    "Story",
    "SyncConn",
    "Topic",
    "Tx",
    "Unknown",
    "Verdict",
    "WorkReport",
]

_WHERE = {
    "Intake": "intake.public",
    "Reserved": "intake.answers",
    "SoldOut": "intake.answers",
    "LimitReached": "intake.answers",
    "NotOpen": "intake.answers",
    "Busy": "intake.answers",
    "ReservationState": "intake.answers",
    "Penstock": "application",
    "AsyncConn": "kernel.connections",
    "SyncConn": "kernel.connections",
    "BadHandler": "kernel.errors",
    "BadPayload": "kernel.errors",
    "DatabaseUnreachable": "kernel.errors",
    "LeaseLost": "kernel.errors",
    "NotInTransaction": "kernel.errors",
    "NotOpened": "kernel.errors",
    "PenstockError": "kernel.errors",
    "Attempt": "kernel.event",
    "Batch": "kernel.event",
    "Effect": "kernel.event",
    "Event": "kernel.event",
    "WorkReport": "kernel.report",
    "Settings": "kernel.settings",
    "Tx": "kernel.tx",
    "Done": "kernel.verdict",
    "Reject": "kernel.verdict",
    "Retry": "kernel.verdict",
    "Unknown": "kernel.verdict",
    "Verdict": "kernel.verdict",
    "KeyReused": "outbox.errors",
    "PayloadRefused": "outbox.errors",
    "SchemaChanged": "outbox.errors",
    "Json": "outbox.model",
    "PublishOptions": "outbox.model",
    "Story": "outbox.model",
    "Outbox": "outbox.topics",
    "Topic": "outbox.topics",
    "Instruction": "payments.instruction",
    "Payments": "payments.public",
    "CodeTable": "payments.rails",
    "NotSent": "payments.rails",
    "Rail": "payments.rails",
    "Sent": "payments.rails",
    "PaymentStory": "payments.story",
}


def __getattr__(name: str) -> object:
    if name == "__version__":
        return import_module("penstock.kernel.version").VERSION
    if name == "Queue":
        return import_module("penstock.application").QueueName
    if name not in _WHERE:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    value = getattr(import_module(f"penstock.{_WHERE[name]}"), name)
    globals()[name] = value
    return value
