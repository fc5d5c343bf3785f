"""pause, resume, dead letters and policy files against a real database."""

import tomllib
from pathlib import Path
from uuid import UUID

import psycopg
from tests.support.cli import Cli

Conn = psycopg.Connection[tuple[object, ...]]


def one(conn: Conn, query: str, *arguments: object) -> object:
    row = conn.execute(query, arguments).fetchone()
    assert row is not None
    return row[0]


def test_pause_and_resume_leave_their_audit_rows(cli: Cli, sync_conn: Conn) -> None:
    paused = cli("pause", "outbox", "--reason", "vendor", "--for", "30m", "--yes", "--json")
    assert paused.code == 0
    audited = one(
        sync_conn, "select reason from audit.audit_logs where id = %s", paused.document["audit_id"]
    )
    assert audited == "vendor"
    minutes = one(
        sync_conn, "select round(extract(epoch from until_at - paused_at) / 60) from penstock.pause"
    )
    assert minutes == 30
    resumed = cli("resume", "outbox", "--yes")
    assert resumed.code == 0
    assert "audit" in resumed.out
    assert one(sync_conn, "select count(*) from penstock.pause") == 0


def test_a_change_without_a_terminal_needs_yes(cli: Cli, sync_conn: Conn) -> None:
    ran = cli("pause", "outbox", "--reason", "vendor")
    assert ran.code == 5
    assert "PN006" in ran.err
    assert "pause outbox until resumed" in ran.out
    assert one(sync_conn, "select count(*) from penstock.pause") == 0


def test_resuming_what_is_not_paused_is_not_found(cli: Cli) -> None:
    assert "PN011" in cli("resume", "outbox", "--yes").err


def test_a_bad_target_is_wrong_usage(cli: Cli) -> None:
    ran = cli("pause", "No Such", "--reason", "x", "--yes")
    assert ran.code == 2
    assert "topic/NAME" in ran.err


def test_dead_list_filters_groups_and_hides_payloads(cli: Cli, dead_events: list[UUID]) -> None:
    everything = cli("dead", "list", "--json")
    assert everything.code == 1
    assert {row["id"] for row in everything.document} == {str(item) for item in dead_events}
    assert "canary" not in everything.out
    assert len(cli("dead", "list", "outbox", "--code", "BAD", "--json").document) == 1
    assert cli("dead", "list", "--topic", "none", "--json").code == 0
    grouped = cli("dead", "list", "--group", "--json").document
    # "upstream 17" and "upstream 18" are one kind of error.
    assert [(row["error_code"], row["count"]) for row in grouped] == [("HTTP_503", 2), ("BAD", 1)]


def test_dead_list_of_an_unknown_queue_names_the_known(cli: Cli) -> None:
    ran = cli("dead", "list", "outbax")
    assert ran.code == 1
    assert "outbox" in ran.err


def test_replay_brings_the_selected_back_with_an_audit_row_each(
    cli: Cli, dead_events: list[UUID], sync_conn: Conn
) -> None:
    ran = cli("dead", "replay", "outbox", "--code", "HTTP_503", "--reason", "fixed", "--yes")
    assert ran.code == 0
    assert "replayed 2 of 2" in ran.out
    assert one(sync_conn, "select count(*) from public.outbox where pos is not null") == 2
    count = "select count(*) from audit.audit_logs where operation = 'replay' and reason = 'fixed'"
    assert one(sync_conn, count) == 2


def test_replay_selecting_nothing_is_wrong_usage(cli: Cli, dead_events: list[UUID]) -> None:
    ran = cli("dead", "replay", "outbox", "--reason", "x", "--yes")
    assert ran.code == 2
    assert "--all" in ran.err


def test_a_dry_run_changes_nothing(cli: Cli, dead_events: list[UUID], sync_conn: Conn) -> None:
    ran = cli("dead", "replay", "outbox", "--all", "--reason", "x", "--dry-run", "--json")
    assert ran.code == 0
    assert ran.document["matched"] == 3
    assert "HTTP_503 2" in ran.err
    assert one(sync_conn, "select count(*) from public.outbox where dead_at is not null") == 3


def test_a_canary_that_is_not_delivered_stops_the_replay(
    cli: Cli, dead_events: list[UUID], sync_conn: Conn
) -> None:
    arguments = ("--all", "--canary", "1", "--wait-s", "1", "--reason", "x", "--yes", "--json")
    ran = cli("dead", "replay", "outbox", *arguments)
    assert ran.code == 1
    assert ran.document["stopped"] is True
    assert ran.document["replayed"] == 1
    assert one(sync_conn, "select count(*) from public.outbox where dead_at is not null") == 2


def test_discard_archives_and_audits(cli: Cli, dead_events: list[UUID], sync_conn: Conn) -> None:
    chosen = str(dead_events[2])
    ran = cli("dead", "discard", "outbox", chosen, "--reason", "test data", "--yes", "--json")
    assert ran.document["discarded"] == 1
    state = one(sync_conn, "select state from app.outbox_all where id = %s", chosen)
    assert state == "DISCARDED"
    assert cli("dead", "show", chosen, "--json").document["audit"][0]["reason"] == "test data"


def test_apply_shows_the_difference_and_is_idempotent(
    cli: Cli, sync_conn: Conn, tmp_path: Path
) -> None:
    file = tmp_path / "policy.toml"
    file.write_text('[queue.outbox]\nlease_s = 45\nretention = "14d"\n')
    dry = cli("apply", str(file), "--dry-run", "--json")
    assert dry.code == 1
    assert dry.document["changes"][0]["after"] == {"lease_s": 45, "retention": 1_209_600}
    assert cli("apply", str(file), "--yes").code == 2, "a reason is missing"
    applied = cli("apply", str(file), "--reason", "slow vendor", "--yes", "--json")
    assert applied.code == 0
    row = sync_conn.execute(
        "select lease_s, extract(epoch from retention)::int, max_attempts "
        "from penstock.queue_config where queue = 'outbox'"
    ).fetchone()
    assert row == (45, 1_209_600, 10)
    audited = one(
        sync_conn,
        "select row_data -> 'after' ->> 'lease_s' from audit.audit_logs where id = %s",
        applied.document["audit_id"],
    )
    assert audited == "45"
    assert "nothing to change" in cli("apply", str(file), "--yes", "--reason", "again").out


def test_what_export_prints_apply_finds_unchanged(cli: Cli, tmp_path: Path) -> None:
    exported = cli("export")
    document = tomllib.loads(exported.out)
    assert "outbox_partitions" in document["schedule"]
    file = tmp_path / "policy.toml"
    file.write_text(exported.out)
    assert "nothing to change" in cli("apply", str(file), "--dry-run").out


def test_apply_refuses_what_it_does_not_know(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    cases = {
        "[queue.outbox]\nleases = 3": "did you mean lease_s",
        "[queues.outbox]\nlease_s = 3": "did you mean queue",
        '[queue.outbox]\nlease_s = "3"': "wants a integer",
        "[queue.outbox]\nlease_s = true": "wants a integer",
        "[queue.outbox]\nretention = 7": "duration",
        "nonsense": "cannot be read",
    }
    for text, expected in cases.items():
        file.write_text(text)
        ran = cli("apply", str(file), "--dry-run")
        assert ran.code == 2, text
        assert expected in ran.err, text


def test_a_value_the_table_refuses_changes_nothing(
    cli: Cli, sync_conn: Conn, tmp_path: Path
) -> None:
    file = tmp_path / "policy.toml"
    file.write_text("[schedule.outbox_partitions]\nevery_s = 60\n[queue.outbox]\nlease_s = -1\n")
    ran = cli("apply", str(file), "--reason", "x", "--yes")
    assert ran.code == 2
    assert "lease_s" in ran.err
    every = "select every_s from penstock.schedule where job = 'outbox_partitions'"
    assert one(sync_conn, every) == 3600
