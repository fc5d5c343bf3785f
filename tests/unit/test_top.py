"""What `penstock top` reckons from two looks."""

import io

import pytest

from penstock.cli.top import Look, _Screen, footer_of, rows_of
from penstock.kernel.operations import QueueStats


def _look(at: float, ready: int, leased: int = 0, dead: int = 0) -> Look:
    queue = QueueStats("outbox", ready, 0, leased, 0, dead, 0, 12.0)
    return Look(at, [queue], [], [])


@pytest.mark.parametrize(
    ("before", "now", "per_s"),
    [
        (_look(10.0, 100), _look(12.0, 40), -30.0),
        (_look(10.0, 0), _look(10.5, 20, 5), 50.0),
        (_look(10.0, 7), _look(10.0, 7), 0.0),
    ],
)
def test_the_rate_is_what_changed_by_the_time_between(
    before: Look, now: Look, per_s: float
) -> None:
    (row,) = rows_of(before, now)
    assert row["per_s"] == per_s


def test_a_queue_that_was_not_there_before_has_no_rate() -> None:
    (row,) = rows_of(Look(1.0, [], [], []), _look(2.0, 1000))
    assert row["per_s"] == 0.0


def test_the_screen_draws_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()
    monkeypatch.setattr("sys.stdout", written)
    with _Screen() as screen:
        screen.update(_look(1.0, 5), _look(2.0, 1234, dead=3))
    assert "1,234" in written.getvalue()
    assert "workers: 0 live" in written.getvalue()
    assert footer_of(_look(1.0, 0)) == "workers: 0 live"
