"""One entry of the error catalogue."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Entry:
    """What a code means, what to do about it, and how surfaces report it."""

    code: str
    title: str
    happened: str
    todo: str
    retryable: bool = False
    http_status: int = 500
    exit_code: int = 1
