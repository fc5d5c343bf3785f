"""What came of a handler's call, in words that can be written down."""

import re
from datetime import timedelta

from penstock.kernel.errors import PenstockError
from penstock.kernel.verdict import DONE, Done, Reject, Retry, Unknown, Verdict

_WORD_STARTS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_CODE_LENGTH_MAX = 60


class TimedOut(Exception):
    """The handler's own time was up, as opposed to a TimeoutError it raised."""


def code_of(error: BaseException) -> str:
    """The code of a failed attempt: a PN code, else the exception's class name in upper snake."""
    if isinstance(error, PenstockError):
        return error.code
    if isinstance(error, TimedOut):
        return "TIMEOUT"
    return _WORD_STARTS.sub("_", type(error).__name__).strip("_").upper()[:_CODE_LENGTH_MAX]


def reason_of(error: BaseException) -> str:
    """What is kept of an exception. Its text may quote a payload, so only ours is kept."""
    if isinstance(error, PenstockError):
        return str(error)
    if isinstance(error, TimedOut):
        return "the handler did not end in time"
    return type(error).__name__


def verdict_of(result: object) -> Verdict:
    """What a handler's return value means; None is Done.

    Anything else than a verdict is a mistake after the effect: the item is held for a person.
    """
    if result is None:
        return DONE
    if isinstance(result, Done | Retry | Reject | Unknown) and _well_formed(result):
        return result
    return Unknown(f"the handler returned {type(result).__name__}, which is no verdict")


def _well_formed(verdict: Verdict) -> bool:
    """Whether the parts have their types: `Retry(after=30)` must not break what writes it down."""
    after = getattr(verdict, "after", None)
    texts = (getattr(verdict, "reason", ""), getattr(verdict, "code", ""))
    return isinstance(after, timedelta | None) and all(isinstance(text, str) for text in texts)
