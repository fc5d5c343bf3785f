"""A worker killed with -9 at every place around the effect, and another that goes on."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.integration.test_cli_worker import APP, effects, publish, states
from tests.support.programs import running

pytestmark = [pytest.mark.fault]

PLAIN = (
    APP
    + """

plain = ps.outbox.topic("plain", Job)


@plain.on()
async def outside(event: Event[Job]) -> None:
    with open("calls.txt", "a") as calls:
        print(event.id, file=calls)
"""
)


@pytest.fixture
def app(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(PLAIN)
    return tmp_path


@pytest.fixture
def sql(database_url: str) -> Iterator[Any]:
    with psycopg.connect(database_url, autocommit=True) as conn:
        conn.execute("create table effects (number int, pid int)")
        conn.execute("update penstock.queue_config set lease_s = 1 where queue = 'outbox'")
        yield conn


def killed_then_another(app: Path, url: str, place: str, sql: Any) -> None:
    """Run a worker that dies at the place, then one that finishes the work."""
    armed = {"PENSTOCK_DATABASE_URL": url, "PENSTOCK_FAILPOINTS": f"{place}=kill@1"}
    with running(["work", "--app", "app:ps"], app, armed) as program:
        assert program.process.wait(20) == -signal.SIGKILL, program.output
    with running(["work", "--app", "app:ps"], app, {"PENSTOCK_DATABASE_URL": url}) as program:
        program.until(lambda: set(states(sql)) == {"DELIVERED"}, "everything delivered", 30)
        assert program.stop() == 0


PLACES = ["after_claim", "before_effect", "after_effect", "mid_finish"]


@pytest.mark.parametrize("place", PLACES)
def test_with_tx_there_is_one_effect_wherever_the_worker_dies(
    app: Path, database_url: str, sql: Any, place: str
) -> None:
    publish(sql, "jobs", 1, 2, 3)
    killed_then_another(app, database_url, place, sql)
    assert effects(sql) == [1, 2, 3]


@pytest.mark.parametrize("place", ["before_effect", "after_effect", "before_finish"])
def test_without_tx_there_is_at_least_one_call_with_the_same_id(
    app: Path, database_url: str, sql: Any, place: str
) -> None:
    publish(sql, "plain", 1)
    killed_then_another(app, database_url, place, sql)
    calls = (app / "calls.txt").read_text().split()
    assert len(set(calls)) == 1
    assert len(calls) == (1 if place == "before_effect" else 2)
