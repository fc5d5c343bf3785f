"""Items that died without their worker: reaped, perhaps inside another client's claim.

The statement that lets one die notes it, and one worker is given the note; so each death is told
at most once, whoever reaped it: the note is taken before it is told, and goes with a worker that
ends in between.
"""

from penstock.kernel.database import call
from penstock.kernel.events import ItemDied
from penstock.kernel.queue import Connection

_TAKE = "select item_id, topic, attempt, code from penstock.take_deaths($1::text)"


async def taken(conn: Connection, queue: str) -> tuple[ItemDied, ...]:
    """The deaths of a queue that nobody has told of, each given at most once.

    From now on they count as told, also if the caller never comes to tell them.
    """
    rows = await call(conn, _TAKE, queue)
    return tuple(
        ItemDied(queue, row["topic"], row["item_id"], row["attempt"], row["code"]) for row in rows
    )
