"""What may come of an attempt. Outcomes are values; exceptions are for the unexpected."""

from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Done:
    """The effect happened and the item is finished. Returning None from a handler means Done."""


@dataclass(frozen=True, slots=True)
class Retry:
    """Try again later; without `after` the queue's back-off decides."""

    after: timedelta | None = None
    reason: str = ""
    code: str = "RETRY"


@dataclass(frozen=True, slots=True)
class Reject:
    """This will never work: dead at once, with a code from a closed set."""

    code: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Unknown:
    """The effect may have happened: held until a person or a resolver has found out."""

    reason: str = ""
    code: str = "UNKNOWN"


Verdict: TypeAlias = Done | Retry | Reject | Unknown

DONE = Done()
