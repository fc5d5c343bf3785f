"""How much one run of a pump may do."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one pump may do: items per claim, items and seconds in all (None: no end).

    `poll_ms` overrules the queue's own, for a process that must look more or less often.
    """

    batch: int = 500
    items: int | None = None
    deadline_s: float | None = None
    until_idle: bool = False
    drain_s: float = 25.0
    poll_ms: int | None = None
