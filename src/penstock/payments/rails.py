"""Rails: who moves the money. A rail takes an instruction and a key, and answers what came of it.

The key is the same for every attempt of a payment. A rail that recognises it pays once however
often it is asked, for as long as it remembers the key; a rail that does not is asked once.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol, TypeAlias, assert_never, runtime_checkable
from uuid import UUID

from penstock.kernel.verdict import Reject, Retry, Unknown
from penstock.payments.instruction import Destination, Instruction
from penstock.payments.model import CODE_LENGTH_MAX, RailClass


@dataclass(frozen=True, slots=True)
class Sent:
    """The rail took it and will pay, or has paid; `reference` is the rail's own name for it."""

    reference: str | None = None
    code: str = "OK"


RailOutcome: TypeAlias = Sent | Retry | Reject | Unknown
StatusOutcome: TypeAlias = Sent | Reject | Unknown


class NotSent(Exception):
    """Raised by a rail that failed before it sent anything: the payment is tried again."""

    def __init__(self, code: str = "NOT_SENT", *, after: timedelta | None = None) -> None:
        super().__init__(code)
        self.code = code
        self.after = after


class Rail(Protocol):
    """Dispatches payments. Any exception but `NotSent` means that the money may have moved.

    Two more methods are used where a rail has them: `status_query` (see `AnswersStatus`) and
    `check_destination` (see `ChecksDestination`).
    """

    async def dispatch(self, instruction: Instruction, key: UUID) -> RailOutcome:
        """Ask for the payment once, under the key; say what came of it."""
        ...


@runtime_checkable
class AnswersStatus(Protocol):
    """A rail that can be asked afterwards what became of a payment."""

    async def status_query(self, instruction: Instruction, key: UUID) -> StatusOutcome:
        """Sent: it was paid. Reject: it was not and will not be. Unknown: it cannot be said."""
        ...


@runtime_checkable
class ChecksDestination(Protocol):
    """A rail that knows what its destinations look like."""

    def check_destination(self, destination: Destination) -> str | None:
        """What is wrong with a destination, without quoting it; None if nothing is."""
        ...


@dataclass(frozen=True, slots=True)
class CodeTable:
    """What each code of a rail means. A code that is not listed is Unknown: nothing is guessed."""

    classes: Mapping[str, RailClass]

    def outcome(
        self, code: str, *, reference: str | None = None, after: timedelta | None = None
    ) -> RailOutcome:
        """The outcome that a code stands for."""
        return outcome_of(
            self.classes.get(code, "UNKNOWN"), code[:CODE_LENGTH_MAX], reference, after=after
        )


def outcome_of(
    kind: RailClass, code: str, reference: str | None = None, *, after: timedelta | None = None
) -> RailOutcome:
    """An outcome by its class."""
    match kind:
        case "OK":
            return Sent(reference, code)
        case "RETRY":
            return Retry(after, code=code)
        case "REJECT":
            return Reject(code)
        case "UNKNOWN":
            return Unknown(code=code)
        case _:
            assert_never(kind)


def well_formed(answer: object) -> RailOutcome:
    """What a rail answered, in the types that it should have; Unknown for what is no answer.

    Rails are other people's code. A payment that was made stays made if its reference is a number,
    and an answer that cannot be read must not count as a payment that was not made.
    """
    match answer:
        case Sent(reference=reference, code=code):
            return Sent(None if reference is None else _words(reference), _words(code))
        case Retry(after=after, reason=reason, code=code):
            known = after if isinstance(after, timedelta) else None
            return Retry(known, _words(reason), _words(code))
        case Reject(code=code, reason=reason):
            return Reject(_words(code), _words(reason))
        case Unknown(reason=reason, code=code):
            return Unknown(_words(reason), _words(code))
        case _:
            return Unknown(f"the rail answered {type(answer).__name__}", "RAIL_ANSWER")


def _words(value: object) -> str:
    return value if isinstance(value, str) else str(value)


def reclassified(outcome: RailOutcome, classes: Mapping[str, RailClass]) -> RailOutcome:
    """The outcome by the operators' table, where that names the code; a payment made stays made."""
    if isinstance(outcome, Sent):
        return outcome
    kind = classes.get(outcome.code)
    if kind is None:
        return outcome
    after = outcome.after if isinstance(outcome, Retry) else None
    return outcome_of(kind, outcome.code, after=after)
