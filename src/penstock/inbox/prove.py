"""The invariants of the inbox: every claim has an end, every event is there once, as it came."""

from penstock.kernel.database import call
from penstock.kernel.proof import SECOND_LOOK_S, Proof, Violation, confirmed
from penstock.kernel.queue import Connection

INVARIANTS = {
    "K5": "each claim of an event has exactly one recorded end, or is still held",
    "N2": "an event of a source is stored once: at work, or archived and remembered",
    "N6": "stored bytes are those that were received",
}
_PROVE = "select invariant, subject, detail from webhook.inbox_prove()"


async def prove(conn: Connection, *, pause_s: float = SECOND_LOOK_S) -> Proof:
    """Look at the events of the last day, and again at what was found."""

    async def look() -> list[Violation]:
        return [Violation(**row) for row in await call(conn, _PROVE)]

    return Proof(INVARIANTS, await confirmed(look, pause_s=pause_s))
