"""Items that died without their worker: reaped, perhaps inside another client's claim.

The statement that lets one die notes it, and one worker is given the note; so each death is told
once, whoever reaped it.
"""

from penstock.kernel.database import call
from penstock.kernel.events import ItemDied
from penstock.kernel.queue import Connection

_TAKE = "select item_id, topic, attempt, code from penstock.take_deaths($1::text)"


async def taken(conn: Connection, queue: str) -> tuple[ItemDied, ...]:
    """The deaths of a queue that nobody has told of; from now on they count as told."""
    rows = await call(conn, _TAKE, queue)
    return tuple(
        ItemDied(queue, row["topic"], row["item_id"], row["attempt"], row["code"]) for row in rows
    )
