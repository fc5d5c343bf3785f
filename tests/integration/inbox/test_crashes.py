"""A worker killed with -9 around the effect, and another that goes on: one effect, one key."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.support.programs import running

pytestmark = [pytest.mark.fault]

APP = """
from typing import Any
from penstock import Event, Penstock, Tx
from penstock.kernel.failpoints import failpoint

ps = Penstock.from_env()


@ps.inbox.on("stripe", "local")
async def local(event: Event[Any], tx: Tx) -> None:
    await tx.execute("insert into effects values ($1)", event.headers["penstock-event-id"])


@ps.inbox.on("stripe", "outside")
async def outside(event: Event[Any]) -> None:
    async with event.effect("call") as effect:
        if not effect.done:
            with open("calls.txt", "a") as calls:
                print(effect.key, file=calls)
            failpoint("during_effect")
"""
INSERT = """insert into webhook_events (webhook_id, event_id, event_type, payload)
            select id, %s, %s, '{}' from webhook_endpoints"""


@pytest.fixture
def app(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(APP)
    return tmp_path


@pytest.fixture
def sql(database_url: str) -> Iterator[Any]:
    with psycopg.connect(database_url, autocommit=True) as conn:
        conn.execute("create table effects (event_id text)")
        conn.execute("insert into webhook_endpoints (source, provider) values ('stripe', 'stripe')")
        conn.execute("update penstock.queue_config set lease_s = 1 where queue = 'inbox'")
        yield conn


def killed_then_another(app: Path, url: str, place: str, sql: Any) -> None:
    """Run a worker that dies at the place, then one that finishes the work."""
    environ = {"PENSTOCK_DATABASE_URL": url}
    armed = {**environ, "PENSTOCK_FAILPOINTS": f"{place}=kill@1"}
    with running(["work", "--app", "app:ps", "--only", "inbox"], app, armed) as program:
        assert program.process.wait(20) == -signal.SIGKILL, program.output
    with running(["work", "--app", "app:ps", "--only", "inbox"], app, environ) as program:
        query = "select bool_and(status = 'success') from webhook_events"
        program.until(lambda: sql.execute(query).fetchone()[0], "everything is a success", 30)
        assert program.stop() == 0


@pytest.mark.parametrize("place", ["after_claim", "after_effect", "mid_finish"])
def test_with_tx_there_is_one_effect_wherever_the_worker_dies(
    app: Path, database_url: str, sql: Any, place: str
) -> None:
    for name in ("a", "b"):
        sql.execute(INSERT, (name, "local"))
    killed_then_another(app, database_url, place, sql)
    assert sorted(sql.execute("select event_id from effects").fetchall()) == [("a",), ("b",)]


@pytest.mark.parametrize(("place", "calls"), [("during_effect", 2), ("before_finish", 1)])
def test_an_outside_call_has_one_key_and_is_not_made_again_once_answered(
    app: Path, database_url: str, sql: Any, place: str, calls: int
) -> None:
    sql.execute(INSERT, ("a", "outside"))
    killed_then_another(app, database_url, place, sql)
    keys = (app / "calls.txt").read_text().split()
    assert (len(keys), len(set(keys))) == (calls, 1)
    row = sql.execute("select state, idempotency_key from webhook_effects").fetchone()
    assert row == ("done", keys[0])
