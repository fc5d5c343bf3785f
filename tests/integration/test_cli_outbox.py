"""`penstock resend`, `blocked`, `park`, `skip` and `top` on a real database."""

import json
from pathlib import Path
from typing import TypeAlias
from uuid import UUID

import psycopg
import pytest
from tests.support.cli import Cli

Sync: TypeAlias = "psycopg.Connection[tuple[object, ...]]"
TENANT = UUID(int=7)
SETUP = """
insert into public.outbox_destinations (name, kind) values ('acme', 'http');
insert into public.outbox_routes (route, topic, destination) values ('acme', 'orders.*', 'acme');
insert into public.outbox_archive
    (seq, id, topic, payload, headers, created_at, lease_epoch, total_attempts, replay_count, state,
     delivered_at)
select n, gen_random_uuid(), case when n <= 30 then 'orders.paid' else 'bills.sent' end,
       '{"card": "4111-canary"}', '{}', penstock.clock(), 1, 1, 0, 'DELIVERED',
       penstock.clock() - interval '30 minutes' + n * interval '1 second'
from generate_series(1, 40) n;
"""
SINCE = ("--destination", "acme", "--since", "1h")


@pytest.fixture
def archive(sync_conn: Sync) -> Sync:
    for statement in SETUP.split(";\n"):
        if statement.strip():
            sync_conn.execute(statement.encode())
    return sync_conn


def _waiting(conn: Sync) -> int:
    row = conn.execute("select count(*) from public.outbox where route = 'acme'").fetchone()
    assert row is not None
    return int(str(row[0]))


def test_a_dry_run_tells_what_would_be_sent_and_sends_nothing(cli: Cli, archive: Sync) -> None:
    ran = cli("resend", *SINCE, "--dry-run")
    assert ran.code == 0
    assert "30  orders.paid" in ran.out
    assert "by route acme" in ran.out
    assert "10  bills.sent" in ran.out
    assert "not sent" in ran.out
    assert "canary" not in ran.out
    assert _waiting(archive) == 0


def test_a_resend_sends_everything_once_and_is_audited(cli: Cli, archive: Sync) -> None:
    ran = cli("resend", *SINCE, "--reason", "acme lost them", "--rate", "1000", "--yes", "--json")
    assert ran.code == 0
    told = ran.document
    assert (told["sent"], told["seen"], told["ended"]) == (30, 40, True)
    assert _waiting(archive) == 30
    audit = cli("audit", "list", "--operation", "resend", "--json").document
    assert [row["id"] for row in audit] == [told["audit_id"]]
    assert audit[0]["reason"] == "acme lost them"
    again = cli("resend", "--resume", told["resend"], "--json").document
    assert (again["sent"], _waiting(archive)) == (30, 30)
    listed = cli("resend", "--list", "--json").document
    assert [row["id"] for row in listed] == [told["resend"]]


def test_a_resend_that_was_stopped_goes_on_where_it_was(cli: Cli, archive: Sync) -> None:
    row = archive.execute(
        "select app.outbox_resend('acme', penstock.clock() - interval '1 h', null, 'why')"
    ).fetchone()
    assert row is not None
    archive.execute("select app.outbox_resend_step(%s, 12)", row)
    assert _waiting(archive) == 12
    ran = cli("resend", "--resume", str(row[0]), "--rate", "1000")
    assert ran.code == 0
    assert "resent 30 of 40" in ran.out
    assert _waiting(archive) == 30


def test_ids_and_topics_choose(cli: Cli, archive: Sync) -> None:
    row = archive.execute("select id::text from public.outbox_archive where seq = 3").fetchone()
    assert row is not None
    ran = cli("resend", str(row[0]), "--destination", "acme", "--reason", "one", "--yes", "--json")
    assert ran.document["sent"] == 1
    none = cli("resend", *SINCE, "--topic", "bills.*", "--reason", "r", "--yes", "--json")
    assert none.document["matched"] == 0


def test_the_rate_is_kept(cli: Cli, archive: Sync, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    async def note(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr("penstock.cli.resend.asyncio.sleep", note)
    cli("resend", *SINCE, "--reason", "slowly", "--rate", "10", "--yes")
    assert len(pauses) >= 3
    assert sum(pauses) > 2  # 30 events at 10 a second, less the time of the steps themselves


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ((), 2),
        (("--destination", "acme"), 2),
        (("--destination", "acme", "--since", "1h", str(TENANT)), 2),
        ((*SINCE, "--yes"), 2),
        (("--resume", str(TENANT)), 1),
    ],
)
def test_what_is_not_said_is_not_guessed(
    cli: Cli, archive: Sync, arguments: tuple[str, ...], code: int
) -> None:
    assert cli("resend", *arguments).code == code
    assert _waiting(archive) == 0


def test_without_a_terminal_it_needs_yes(cli: Cli, archive: Sync) -> None:
    assert cli("resend", *SINCE, "--reason", "r").code == 5
    assert _waiting(archive) == 0


@pytest.fixture
def line(sync_conn: Sync) -> list[UUID]:
    """Three events of one key and tenant; the first is dead."""
    ids = []
    for number in range(3):
        row = sync_conn.execute(
            "select app.outbox_publish(null, 'orders.paid', %s::jsonb, p_ordering_key => 'c-7',"
            " p_tenant => %s)",
            (json.dumps({"n": number}), TENANT),
        ).fetchone()
        assert row is not None
        ids.append(UUID(str(row[0])))
    sync_conn.execute(
        "update public.outbox set pos = null, dead_at = penstock.clock(), error_code = 'BAD',"
        " attempts = 10 where id = %s",
        (ids[0],),
    )
    return ids


def _state(conn: Sync, event: UUID) -> object:
    row = conn.execute("select state from app.outbox_all where id = %s", (event,)).fetchone()
    return None if row is None else row[0]


def test_blocked_keys_are_listed_with_what_holds_them_up(cli: Cli, line: list[UUID]) -> None:
    ran = cli("blocked", "--json")
    assert ran.code == 1
    (key,) = ran.document
    assert (key["ordering_key"], key["head_id"]) == ("c-7", str(line[0]))
    assert (key["state"], key["error_code"], key["behind"]) == ("DEAD", "BAD", 2)
    assert cli("blocked", "other").code == 0


def test_a_parked_head_is_a_dead_letter_and_the_next_goes(
    cli: Cli, sync_conn: Sync, line: list[UUID]
) -> None:
    arguments = ("park", "c-7", "--tenant", str(TENANT), "--reason", "later", "--yes")
    ran = cli(*arguments)
    assert ran.code == 0
    assert "2 behind it may go on" in ran.out
    assert [_state(sync_conn, event) for event in line] == ["DEAD", "READY", "BEHIND"]
    assert cli("blocked").code == 0
    audit = cli("audit", "list", "--operation", "park", "--json").document
    assert len(audit) == 1


def test_a_skipped_head_is_given_up_and_the_next_goes(
    cli: Cli, sync_conn: Sync, line: list[UUID]
) -> None:
    ran = cli("skip", "c-7", "--tenant", str(TENANT), "--reason", "wrong", "--yes", "--json")
    assert ran.code == 0
    assert ran.document["id"] == str(line[0])
    assert [_state(sync_conn, event) for event in line] == ["DISCARDED", "READY", "BEHIND"]


def test_the_line_of_another_tenant_is_not_touched(
    cli: Cli, sync_conn: Sync, line: list[UUID]
) -> None:
    ran = cli("skip", "c-7", "--reason", "wrong", "--yes")
    assert ran.code == 1
    assert "name both" in ran.err
    assert _state(sync_conn, line[0]) == "DEAD"
    assert cli("park", "c-7", "--reason", "r", "--tenant", str(TENANT)).code == 5


def test_top_shows_every_queue_and_how_it_moves(cli: Cli, line: list[UUID]) -> None:
    ran = cli("top", "--count", "2", "--every", "0.2")
    assert ran.code == 0
    first, second = ran.out.splitlines()
    assert "outbox 0+0" in first
    assert "(0.0/s)" in second
    document = json.loads(cli("top", "--count", "1", "--json").out)
    outbox = next(row for row in document["queues"] if row["queue"] == "outbox")
    assert (outbox["dead"], outbox["scheduled"]) == (1, 2)


def test_the_destinations_of_the_alerts_page_can_be_applied(
    cli: Cli, sync_conn: Sync, tmp_path: Path
) -> None:
    page = Path(__file__).parents[2].joinpath("docs", "how-to", "get-alerts.md").read_text("utf-8")
    file = tmp_path / "alerts.toml"
    file.write_text(page.split("```toml\n")[1].split("```")[0])
    assert cli("apply", str(file), "--reason", "try the page", "--yes").code == 0
    row = sync_conn.execute(
        "select count(*) from public.outbox_routes where topic = 'penstock.alert'"
    ).fetchone()
    assert row == (3,)
    assert cli("apply", str(file), "--reason", "again", "--yes", "--json").document["changes"] == []


def _findings(cli: Cli, check: str) -> list[dict[str, str]]:
    found = cli("doctor", "--json").document["findings"]
    return [finding for finding in found if finding["check"] == check]


def test_doctor_says_when_nobody_hears_of_dead_letters(cli: Cli, sync_conn: Sync) -> None:
    assert _findings(cli, "alerts") == []
    sync_conn.execute(
        "insert into public.outbox_alerts (topic, state, fingerprint, total, unsent, examples,"
        " first_at, last_at) values ('t', 'DEAD', 'f', 5, 3, '{}', now(), now())"
    )
    (finding,) = _findings(cli, "alerts")
    assert "3 dead or held items were alerted to nobody" in finding["finding"]
    sync_conn.execute(
        "insert into public.outbox (topic, payload, pos, dead_at, error_code)"
        " values ('penstock.alert', '{}', null, now(), 'HTTP_400')"
    )
    assert "1 alerts could not be delivered" in _findings(cli, "alerts")[1]["finding"]
