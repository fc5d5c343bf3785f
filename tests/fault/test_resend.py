"""A resend whose process is killed or stopped: gone on with, every event is sent exactly once."""

import signal
from pathlib import Path
from typing import TypeAlias

import psycopg
import pytest
from tests.support.programs import running

Sync: TypeAlias = "psycopg.Connection[tuple[object, ...]]"
COUNT = 600
SETUP = (
    b"insert into public.outbox_destinations (name, kind) values ('acme', 'http')",
    b"insert into public.outbox_routes (route, topic, destination) values ('acme', 'o.*', 'acme')",
    b"""insert into public.outbox_archive
            (seq, id, topic, payload, headers, created_at, lease_epoch, total_attempts,
             replay_count, state, delivered_at)
        select n, gen_random_uuid(), 'o.paid', '{}', '{}', penstock.clock(), 1, 1, 0, 'DELIVERED',
               penstock.clock() - interval '30 minutes' + n * interval '100 ms'
        from generate_series(1, 600) n""",
)


def _sent(conn: Sync) -> tuple[int, int]:
    """How many deliveries there are, and of how many events."""
    row = conn.execute(
        "select count(*), count(distinct event_id) from public.outbox where route = 'acme'"
    ).fetchone()
    assert row is not None
    return int(str(row[0])), int(str(row[1]))


@pytest.mark.parametrize(
    ("how", "codes"), [(signal.SIGKILL, {-9}), (signal.SIGINT, {130}), (signal.SIGTERM, {-15})]
)
def test_a_stopped_resend_goes_on_and_doubles_nothing(
    database_url: str, tmp_path: Path, how: signal.Signals, codes: set[int]
) -> None:
    arguments = ["--database", database_url, "resend", "--yes"]
    begin = ["--destination", "acme", "--since", "1h", "--rate", "100", "--reason", "lost"]
    with psycopg.connect(database_url, autocommit=True) as conn:
        for statement in SETUP:
            conn.execute(statement)
        with running([*arguments, *begin], tmp_path) as program:
            program.until(lambda: _sent(conn)[0] >= 200, "a third is sent")
            assert program.stop(how) in codes
            if how == signal.SIGINT:
                assert "--resume" in program.output
        stopped_at = _sent(conn)[0]
        assert 200 <= stopped_at < COUNT
        row = conn.execute("select id, ended_at, sent from public.outbox_resends").fetchone()
        assert row is not None
        assert (row[1], row[2]) == (None, stopped_at)
        with running([*arguments, "--resume", str(row[0]), "--rate", "5000"], tmp_path) as on:
            assert on.process.wait(30) == 0
        assert _sent(conn) == (COUNT, COUNT)
