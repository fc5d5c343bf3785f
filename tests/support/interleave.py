"""Several SQL sessions stepped by a test, to write one interleaving down and have it every time.

A step that must wait for a lock is started, and the stage tells from the server's own lock tables
that it is blocked; nothing here sleeps and hopes.
"""

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self, TypeAlias

import asyncpg
from tests.support.waiting import until

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


class Step:
    """A statement under way in one session."""

    def __init__(self, session: "Session", query: str, args: Sequence[object]) -> None:
        self.query = query
        self.task = asyncio.create_task(session.conn.fetch(query, *args))

    async def done(self, *, within_s: float = 10.0) -> list[asyncpg.Record]:
        """Its rows, once it has ended."""
        return await asyncio.wait_for(asyncio.shield(self.task), within_s)


class Session:
    """One connection; statements run one after the other."""

    def __init__(self, name: str, conn: Connection, pid: int) -> None:
        self.name = name
        self.conn = conn
        self.pid = pid

    async def run(self, query: str, *args: object) -> list[asyncpg.Record]:
        """Run a statement to its end."""
        return await asyncio.wait_for(self.conn.fetch(query, *args), 10)

    async def value(self, query: str, *args: object) -> Any:
        """Run a statement and return the one value of its one row."""
        rows = await self.run(query, *args)
        return rows[0][0]

    def start(self, query: str, *args: object) -> Step:
        """Start a statement that is expected to wait."""
        return Step(self, query, args)

    async def begin(self, isolation: str = "read committed") -> None:
        """Open a transaction."""
        await self.conn.execute(f"begin isolation level {isolation}")

    async def commit(self) -> None:
        """Commit it."""
        await self.conn.execute("commit")

    async def rollback(self) -> None:
        """Undo it."""
        await self.conn.execute("rollback")


class Stage:
    """Opens sessions on one database and watches them from a session of its own."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._sessions: list[Session] = []
        self._observer: Connection | None = None

    async def __aenter__(self) -> Self:
        self._observer = await asyncpg.connect(self._url)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for session in self._sessions:
            session.conn.terminate()
        if self._observer is not None:
            await self._observer.close()

    async def session(self, name: str) -> Session:
        """Open one more session."""
        conn = await asyncpg.connect(self._url)
        session = Session(name, conn, conn.get_server_pid())
        self._sessions.append(session)
        return session

    async def sessions(self, *names: str) -> list[Session]:
        """Open several sessions."""
        return [await self.session(name) for name in names]

    async def is_blocked(self, session: Session) -> bool:
        """Whether the session waits for a lock that another one holds."""
        assert self._observer is not None, "enter the stage first"
        blockers = await self._observer.fetchval("select pg_blocking_pids($1)", session.pid)
        return bool(blockers)

    async def until_blocked(self, session: Session, step: Step, *, within_s: float = 5.0) -> None:
        """Wait until the step waits for a lock; fail if it ends without waiting."""

        async def look() -> bool:
            if step.task.done():
                raise AssertionError(f"{session.name} did not wait: {step.query}")
            return await self.is_blocked(session)

        await until(look, f"{session.name} is blocked", within_s=within_s)
