"""What the workers say of themselves, read from their logs as they grow."""

import json
from collections import Counter
from pathlib import Path
from typing import Any


class WorkerLogs:
    """Counts over all logs; each log is read once, line by line, as far as it goes."""

    def __init__(self) -> None:
        self._places: dict[Path, int] = {}
        self._claimed: Counter[Path] = Counter()
        self._confirmed: Counter[Path] = Counter()
        self._lost: Counter[Path] = Counter()
        self._confirmations: Counter[str] = Counter()
        self._redelivered: set[str] = set()
        self._refused = 0

    def watch(self, log: Path) -> None:
        """Follow one more log."""
        self._places[log] = 0

    def read(self) -> None:
        """Take in what was written since the last time."""
        for log, place in self._places.items():
            with log.open("rb") as stream:
                stream.seek(place)
                data = stream.read()
            whole = data.rfind(b"\n") + 1
            self._places[log] = place + whole
            for line in data[:whole].splitlines():
                if line.startswith(b"{"):
                    self._take(log, json.loads(line))

    def _take(self, log: Path, entry: dict[str, Any]) -> None:
        match entry.get("event"):
            case "claimed":
                self._claimed[log] += int(entry["count"])
            case "reservation_confirmed":
                self._confirmed[log] += 1
                self._confirmations[entry["reservation_id"]] += 1
                if int(entry["attempt"]) > 1:
                    self._redelivered.add(entry["reservation_id"])
            case "reservation_retried":
                self._claimed[log] -= 1  # given back: the ledger was away
            case "finish_refused":
                self._refused += 1
            case "lease_lost":
                self._lost[log] += 1
            case _:
                return

    def held_by(self, log: Path) -> int:
        """What a worker has claimed and not yet finished."""
        return self._claimed[log] - self._confirmed[log]

    def lost_by(self, log: Path) -> int:
        """Leases that a worker found taken over by others."""
        return self._lost[log]

    def late(self) -> int:
        """Finishes that came after somebody else's and changed nothing."""
        again = sum(self._confirmations.values()) - len(self._confirmations)
        return again + self._refused

    def figures(self) -> dict[str, int]:
        """What the screen shows."""
        return {"stale": self.late(), "redelivered": len(self._redelivered)}
