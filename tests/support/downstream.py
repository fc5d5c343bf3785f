"""What handlers of test workers call: a downstream that writes every call down, whoever dies.

Calls are lines appended to a file. One `write` of a short line to a file opened for appending is
whole or absent, also when the writer is killed right after it.
"""

import json
import os
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Call:
    """One call: which key, which attempt, from which process, when, and what came of it."""

    key: str
    attempt: int
    pid: int
    at: float
    outcome: str


class Downstream:
    """The record, for those who call and for those who check."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def record(self, key: str, attempt: int, outcome: str) -> None:
        """Write one call down."""
        call = Call(key, attempt, os.getpid(), time.monotonic(), outcome)
        line = json.dumps(asdict(call)) + "\n"
        handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            os.write(handle, line.encode())
        finally:
            os.close(handle)

    def calls(self, outcome: str | None = None) -> list[Call]:
        """All calls so far, or those with an outcome."""
        if not self.path.exists():
            return []
        lines = self.path.read_text().splitlines()
        found = [Call(**json.loads(line)) for line in lines]
        return [call for call in found if outcome in (None, call.outcome)]

    def per_key(self, outcome: str = "done") -> Counter[str]:
        """How often each key was called with an outcome."""
        return Counter(call.key for call in self.calls(outcome))
