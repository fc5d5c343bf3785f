"""A rail that moves no money and keeps its own books, for tests, the demo and benchmarks.

It behaves as real rails do at their worst: slow, busy, silent after having paid, forgetful of keys.
What it has paid stands in `effects`, independent of what anybody else recorded.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from uuid import UUID

from penstock.kernel.verdict import Reject, Unknown
from penstock.payments.instruction import Destination, Instruction
from penstock.payments.rails import CodeTable, NotSent, RailOutcome, Sent, StatusOutcome

CODES = CodeTable({"PAID": "OK", "BUSY": "RETRY", "REFUSED": "REJECT"})


class Unreachable(Exception):
    """Nothing reached the rail."""


class Lost(Exception):
    """The connection broke after the request was sent."""


@dataclass(frozen=True, slots=True)
class Faults:
    """How often things go wrong, as shares of all calls; `slow_s` is how long a slow answer takes.

    `lost_before` and `slow_before` break without having paid, `lost_after` and `slow_after` after.
    """

    unreachable: float = 0.0
    busy: float = 0.0
    refused: float = 0.0
    lost_before: float = 0.0
    lost_after: float = 0.0
    slow_before: float = 0.0
    slow_after: float = 0.0
    slow_s: float = 5.0

    def pick(self, random: Random) -> str:
        """What happens to one call: a name of a share, or the empty string."""
        drawn = random.random()
        for name in (
            *("unreachable", "busy", "refused"),
            *("lost_before", "lost_after", "slow_before", "slow_after"),
        ):
            drawn -= getattr(self, name)
            if drawn < 0:
                return name
        return ""


@dataclass(frozen=True, slots=True)
class Effect:
    """Money that moved."""

    key: UUID
    reference: str
    instruction: Instruction


@dataclass(slots=True)
class Simulator:
    """The rail's side: its books, its memory of keys, and what it is told to do wrong."""

    keyed: bool = True
    window_s: float = 86_400.0
    latency_s: float = 0.0
    faults: Faults = field(default_factory=Faults)
    random: Random = field(default_factory=Random)
    clock: Callable[[], float] = time.monotonic
    effects: list[Effect] = field(default_factory=list)
    calls: list[UUID] = field(default_factory=list)
    script: list[str] = field(default_factory=list)
    _remembered: dict[UUID, tuple[float, str]] = field(default_factory=dict)
    _refused: set[UUID] = field(default_factory=set)

    async def pay(self, instruction: Instruction, key: UUID) -> tuple[str, str | None]:
        """Pay, unless this key is known; returns code and reference. Raises Unreachable or Lost.

        What `script` names happens first, in order; then chance decides.
        """
        fault = self.script.pop(0) if self.script else self.faults.pick(self.random)
        if fault == "unreachable":
            raise Unreachable
        self.calls.append(key)
        if self.latency_s:
            await asyncio.sleep(self.latency_s)
        known = self._known(key)
        if known is not None and fault not in ("lost_before", "slow_before"):
            return await self._answer(fault, "PAID", known)
        if fault == "busy":
            return "BUSY", None
        if fault == "refused" or (self.keyed and key in self._refused):
            self._refused.add(key)  # a rail with keys does not change its mind
            return "REFUSED", None
        if fault == "lost_before":
            raise Lost
        if fault == "slow_before":
            await asyncio.sleep(self.faults.slow_s)
            raise Lost
        reference = f"sim-{len(self.effects) + 1}"
        self.effects.append(Effect(key, reference, instruction))
        self._remembered[key] = (self.clock(), reference)
        return await self._answer(fault, "PAID", reference)

    async def _answer(self, fault: str, code: str, reference: str) -> tuple[str, str]:
        if fault == "lost_after":
            raise Lost
        if fault == "slow_after":
            await asyncio.sleep(self.faults.slow_s)
        return code, reference

    def _known(self, key: UUID) -> str | None:
        if not self.keyed or key not in self._remembered:
            return None
        since, reference = self._remembered[key]
        return reference if self.clock() - since < self.window_s else None

    def paid(self, key: UUID) -> str | None:
        """What the books say: the reference of what was paid under a key."""
        return next((effect.reference for effect in self.effects if effect.key == key), None)

    def doubles(self) -> dict[UUID, int]:
        """Keys under which money moved more than once."""
        counted = Counter(effect.key for effect in self.effects)
        return {key: count for key, count in counted.items() if count > 1}


class SimulatorRail:
    """A rail in the same process as its simulator."""

    def __init__(self, simulator: Simulator | None = None) -> None:
        self.simulator = simulator or Simulator()

    async def dispatch(self, instruction: Instruction, key: UUID) -> RailOutcome:
        """Pay over the simulator."""
        try:
            code, reference = await self.simulator.pay(instruction, key)
        except Unreachable:
            raise NotSent("UNREACHABLE") from None
        except Lost:
            return Unknown("the connection broke", "LOST")
        return CODES.outcome(code, reference=reference)

    def check_destination(self, destination: Destination) -> str | None:
        """Refuses destinations that say so."""
        return "the destination is closed" if "closed" in destination else None


class AskableRail(SimulatorRail):
    """The same, for a rail that can be asked what became of a payment."""

    async def status_query(self, instruction: Instruction, key: UUID) -> StatusOutcome:
        """Look into the books. What is not there may still come."""
        del instruction
        reference = self.simulator.paid(key)
        if reference is not None:
            return Sent(reference, "PAID")
        if key in self.refusals:
            return Reject("REFUSED")
        return Unknown(code="NOT_FOUND")

    def __init__(self, simulator: Simulator | None = None) -> None:
        super().__init__(simulator)
        self.refusals: set[UUID] = set()
