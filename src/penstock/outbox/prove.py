"""The kernel's invariants, looked at in the outbox: every event and every claim accounted for."""

from penstock.kernel.database import call
from penstock.kernel.proof import SECOND_LOOK_S, Proof, Violation, confirmed
from penstock.kernel.queue import Connection

INVARIANTS = {
    "K5": "each claim of an event has exactly one recorded end, or is still held",
    "K6": "an event is ready, leased, waiting, dead, held or archived: exactly one of them",
}
_PROVE = "select invariant, subject, detail from app.outbox_prove()"


async def prove(conn: Connection, *, pause_s: float = SECOND_LOOK_S) -> Proof:
    """Look at the events of the last day, and again at what was found."""

    async def look() -> list[Violation]:
        return [Violation(**row) for row in await call(conn, _PROVE)]

    return Proof(INVARIANTS, await confirmed(look, pause_s=pause_s))
