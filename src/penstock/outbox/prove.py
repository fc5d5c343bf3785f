"""Every event and every claim accounted for, and every row of a relay table."""

from penstock.kernel.database import call
from penstock.kernel.proof import SECOND_LOOK_S, Proof, Violation, confirmed
from penstock.kernel.queue import Connection

INVARIANTS = {
    "K5": "each claim of an event has exactly one recorded end, or is still held",
    "K6": "an event is ready, leased, waiting, dead, held or archived: exactly one of them",
    "O3": "what is said to be delivered was delivered under a lease",
    "L1": "a row of a relay table is sent, on its way, dead, or given up by a person",
    "L3": "a row is SENT only if its event is delivered, to all of its routes",
    "L4": "retry_count is the number of dispatches that were started",
}
_PROVE = (
    "select invariant, subject, detail from app.outbox_prove()"
    " union all select invariant, subject, detail from app.outbox_prove_ends()"
)


async def prove(conn: Connection, *, pause_s: float = SECOND_LOOK_S) -> Proof:
    """Look at the events of the last day, and again at what was found."""

    async def look() -> list[Violation]:
        return [Violation(**row) for row in await call(conn, _PROVE)]

    return Proof(INVARIANTS, await confirmed(look, pause_s=pause_s))
