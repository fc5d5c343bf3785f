"""Intake of one open application: the front door, the bridge, and what operators ask of both."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from penstock.intake import engine
from penstock.intake.answers import ReservationState, ReserveAnswer
from penstock.intake.bridge import Bridge
from penstock.intake.groups import CALLS_MAX, Claim, FrontDoor
from penstock.intake.ledger import LedgerAway
from penstock.kernel.database import Database
from penstock.kernel.events import Events
from penstock.kernel.gathering import Asker
from penstock.kernel.http_errors import RequestRefused
from penstock.kernel.settings import Settings

ID_LENGTH_MAX = 200


@dataclass(frozen=True, slots=True)
class DeadEnding:
    """What an operator's action did to one dead letter."""

    msg_id: int
    outcome: str
    audit_id: UUID | None = None
    new_msg_id: int | None = None


class Desk:
    """What both the Python interface and HTTP stand on. Opens nothing by itself."""

    def __init__(
        self, database: Database, ledger: Database | None, *, events: Events, settings: Settings
    ) -> None:
        self.database = database
        self.bridge = Bridge(database, ledger, events=events, settings=settings)
        grouped = settings.intake_group_max > 1
        self.door = FrontDoor(
            self._reserve,
            waiting_max=settings.intake_max_waiting,
            group_max=settings.intake_group_max,
            # Groups do best over few connections, single claims over all that there are.
            calls_max=CALLS_MAX if grouped else settings.pool_size,
        )

    async def close(self) -> None:
        """Answer who waits, then close what was opened here."""
        await self.door.close()
        await self.bridge.close()

    async def reserve(self, pool: str, claim: Claim) -> ReserveAnswer:
        """Claim a slot, together with whoever claims at the same moment.

        Raises RequestRefused for ids that cannot be stored: one of them would spoil the others'
        call.
        """
        check_ids(pool, claim)
        return await self.door.reserve(pool, claim)

    def put(self, pool: str, claim: Claim, asker: Asker[ReserveAnswer]) -> None:
        """The same, once: where others are claiming the slots, the answer is Busy."""
        check_ids(pool, claim)
        self.door.put(pool, claim, asker)

    async def _reserve(self, pool: str, claims: Sequence[Claim]) -> Sequence[ReserveAnswer]:
        async with self.database.connection() as conn:
            return await engine.reserve(conn, pool, claims)

    async def status(self, reservation: UUID) -> tuple[ReservationState, str] | None:
        """What became of a reservation, and whose it is."""
        async with self.database.connection() as conn:
            return await engine.status(conn, reservation)

    async def dead_list(self, pool: str | None, *, after: int, limit: int) -> engine.Rows:
        """Dead letters by number; metadata only."""
        async with self.database.connection() as conn:
            return await engine.dead_list(conn, pool, after=after, limit=limit)

    async def replay(
        self, msg_ids: Sequence[int], *, reason: str, operator: str
    ) -> list[DeadEnding]:
        """Give dead letters a new cycle; refused where the slot is no longer theirs."""
        async with self.database.connection() as conn:
            rows = await engine.dead_replay(conn, msg_ids, reason=reason, operator=operator)
        return [
            DeadEnding(row["msg_id"], row["outcome"], row["audit_id"], row["new_msg_id"])
            for row in rows
        ]

    async def discard(
        self, msg_ids: Sequence[int], *, reason: str, operator: str, force: bool = False
    ) -> list[DeadEnding]:
        """Give dead letters up and free their slots.

        Where a commit was started, the ledger is asked to cancel first, so that a late commit
        cannot follow; `force` takes the operator's word for pools that commit by webhook.
        """
        endings: list[DeadEnding] = []
        async with self.database.connection() as conn:
            rows = await engine.dead_discard(conn, msg_ids, reason=reason, operator=operator)
        for row in rows:
            ending = DeadEnding(row["msg_id"], row["outcome"], row["audit_id"])
            if ending.outcome == "started":
                ending = await self._cancel(ending, reason=reason, operator=operator, force=force)
            endings.append(ending)
        return endings

    async def _cancel(
        self, ending: DeadEnding, *, reason: str, operator: str, force: bool
    ) -> DeadEnding:
        async with self.database.connection() as conn:
            dead = await engine.dead_one(conn, ending.msg_id)
        if dead is None:
            return DeadEnding(ending.msg_id, "gone")
        if dead["by_webhook"]:
            word = "CANCELLED" if force else "started"
        else:
            word = await self._cancelled_in_ledger(dead["id"])
        async with self.database.connection() as conn:
            if word == "CONFIRMED":
                await engine.complete(conn, [ending.msg_id], [dead["resource_id"]], [dead["id"]])
                return DeadEnding(ending.msg_id, "sold")
            if word != "CANCELLED":
                return DeadEnding(ending.msg_id, word)
            rows = await engine.dead_discard(
                conn, [ending.msg_id], reason=reason, operator=operator, cancelled=[dead["id"]]
            )
        return DeadEnding(ending.msg_id, rows[0]["outcome"], rows[0]["audit_id"])

    async def _cancelled_in_ledger(self, reservation: UUID) -> str:
        try:
            return await self.bridge.ledger.cancel(reservation)
        except LedgerAway:
            return "ledger_down"


def check_ids(pool: str, claim: Claim) -> None:
    """Refuse a claim whose ids cannot be stored."""
    check_id("pool", pool)
    check_id("user", claim.user)
    if claim.request_id is not None:
        check_id("request id", claim.request_id)


def check_id(what: str, text: str) -> None:
    """Refuse what Postgres cannot store as text, and what is too long to be an id."""
    if not 1 <= len(text) <= ID_LENGTH_MAX:
        raise RequestRefused(f"a {what} has 1 to {ID_LENGTH_MAX} characters")
    if (not text.isascii() and not _is_encodable(text)) or "\0" in text:
        raise RequestRefused(f"the {what} holds characters that cannot be stored")


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
