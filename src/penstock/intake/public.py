"""Intake's part of the application object: reserve and ask in Python, work in a worker."""

from collections.abc import Callable, Mapping, Sequence
from uuid import UUID

from penstock.intake import engine
from penstock.intake.answers import ReservationState, ReserveAnswer
from penstock.intake.desk import Desk
from penstock.intake.groups import Claim
from penstock.intake.messages import QUEUE
from penstock.kernel.errors import NotFound, NotOpened
from penstock.kernel.lending import Lending
from penstock.kernel.scheduler import Job
from penstock.kernel.worker import Assignment


class Intake:
    """Sells scarce things. Needs the application to be open."""

    queue_name = QUEUE

    def __init__(self, lending: Callable[[], Lending]) -> None:
        self._opened = lending
        self._lending: Lending | None = None
        self._desk: Desk | None = None

    async def reserve(self, pool: str, *, user: str, request_id: str) -> ReserveAnswer:
        """Claim a slot for a user; a repeated request id gets the same slot.

        An error means that the outcome is unknown: repeat it with the same request id.
        """
        return await self.desk.reserve(pool, Claim(user, request_id))

    async def status(self, reservation_id: UUID) -> ReservationState:
        """What became of a reservation; raises NotFound."""
        found = await self.desk.status(reservation_id)
        if found is None:
            raise NotFound(f"no reservation {reservation_id}")
        return found[0]

    @property
    def desk(self) -> Desk:
        """The desk of the open application; raises NotOpened."""
        lending = self._opened()
        if self._desk is None or self._lending is not lending:
            self._lending = lending
            self._desk = Desk(
                lending.database,
                lending.ledger,
                events=lending.events,
                settings=lending.settings,
            )
        return self._desk

    async def close(self) -> None:
        """Answer who waits and close outgoing connections; the application calls it."""
        desk, self._desk, self._lending = self._desk, None, None
        if desk is not None:
            await desk.close()

    def kinds(self) -> Sequence[type]:
        """It has no handlers of the user's, so it asks for no resources."""
        return ()

    async def assignment(self, lending: Lending) -> Assignment | None:
        """The bridge: a queue and its two lanes; None on a connection lent for a test.

        The ledger is another database: no transaction of the user's could hold both.
        """
        return self.desk.bridge.assignment() if self._is_open(lending) else None

    def _is_open(self, lending: Lending) -> bool:
        try:
            return self._opened() is lending
        except NotOpened:
            return False

    def jobs(self, lending: Lending) -> Mapping[str, Job]:
        """Metrics, reaper, holds, housekeeping and purge."""
        del lending
        return dict(engine.JOBS)
