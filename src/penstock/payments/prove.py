"""The invariants of payments that the database alone can show."""

from penstock.kernel.proof import SECOND_LOOK_S, Proof, Violation, confirmed
from penstock.kernel.queue import Connection
from penstock.payments import store

INVARIANTS = {
    "M2": "a key belongs to one payment, with the same content everywhere",
    "M3": "a participant's payments are numbered without gap or duplicate",
    "M4": "one payment per participant is in flight, and dispatches begin in order",
    "M5": "each dispatch has exactly one outcome on record, unless it is in flight",
    "M6": "an open payment is in exactly one place, an ended one in none",
    "M7": "no attempt on record was changed or removed",
    "M9": "a payment counts as dispatched exactly if an attempt says so",
}
UNSEEN = {
    "M1": "only a rail's own books show that it paid once per key",
    "M8": "only a rail's own books show what it was sent",
    "M10": "only a rail's own books show how often it was called",
}


async def prove(conn: Connection, *, pause_s: float = SECOND_LOOK_S) -> Proof:
    """Look at every payment and at the chain of attempts, and again at what was found."""

    async def look() -> list[Violation]:
        found = [
            Violation(v.invariant, str(v.outbox_id or v.participant_id), v.detail)
            for v in await store.prove(conn)
        ]
        found += [
            Violation("M7", str(link.attempt_id), f"{link.participant_id}: {link.problem}")
            for link in await store.verify_chain(conn)
        ]
        return found

    return Proof(INVARIANTS, await confirmed(look, pause_s=pause_s), UNSEEN)
