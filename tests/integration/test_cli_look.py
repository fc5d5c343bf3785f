"""stats, show, audit and doctor against a real database."""

import json
from urllib.parse import urlsplit
from uuid import UUID

import psycopg
import pytest
from tests.support.cli import Cli, make_cli
from tests.support.payments import PAYLOAD

Conn = psycopg.Connection[tuple[object, ...]]


def test_stats_lists_every_registered_queue(cli: Cli, dead_events: list[UUID]) -> None:
    ran = cli("stats", "--json")
    assert ran.code == 0
    queues = {queue["queue"]: queue for queue in ran.document["queues"]}
    assert queues["outbox"]["dead"] == len(dead_events)
    assert ran.document["pauses"] == []


def test_stats_says_what_is_paused_and_who_works(cli: Cli, sync_conn: Conn) -> None:
    sync_conn.execute("select penstock.pause_target('outbox', 'vendor is down', '1 hour', 'ada')")
    sync_conn.execute(
        "select penstock.heartbeat(gen_random_uuid(), 'box', 4711, '0.1', array['outbox'])"
    )
    ran = cli("stats")
    assert "outbox (paused)" in ran.out
    assert "vendor is down" in ran.out
    assert "workers: 1 live" in ran.out
    assert "pid 4711" in ran.out


def test_show_tells_the_story_without_the_payload(cli: Cli, dead_events: list[UUID]) -> None:
    ran = cli("show", str(dead_events[0]), "--json")
    assert ran.code == 0
    assert ran.document["state"] == "DEAD"
    assert ran.document["error_code"] == "HTTP_503"
    assert "payload" not in ran.document
    assert "canary" not in ran.out


def test_a_payload_needs_a_reason_and_leaves_an_audit_row(
    cli: Cli, dead_events: list[UUID], sync_conn: Conn
) -> None:
    refused = cli("show", str(dead_events[0]), "--payload")
    assert refused.code == 2
    assert "PN205" in refused.err
    shown = cli("show", str(dead_events[0]), "--payload", "--reason", "ticket 7", "--json")
    assert shown.document["payload"] == {"card": "4111-canary"}
    rows = sync_conn.execute(
        "select reason, row_data ->> 'id' from audit.audit_logs where operation = 'read_payload'"
    ).fetchall()
    assert rows == [("ticket 7", str(dead_events[0]))]


def test_show_of_an_unknown_item_is_not_found(cli: Cli) -> None:
    ran = cli("show", "01890000-0000-7000-8000-000000000000", "--json")
    assert ran.code == 1
    assert ran.document["error"]["code"] == "PN011"


def test_show_refuses_what_is_no_id(cli: Cli) -> None:
    assert cli("show", "nonsense").code == 2


def test_audit_lists_and_exports_actions(cli: Cli, sync_conn: Conn) -> None:
    for target in ("topic/a", "topic/b"):
        sync_conn.execute("select penstock.pause_target(%s, 'quiet', null, 'ada')", (target,))
    listed = cli("audit", "list", "--operation", "pause", "--json")
    assert [row["row_data"]["target"] for row in listed.document] == ["topic/b", "topic/a"]
    assert cli("audit", "list", "--operation", "resume", "--json").document == []
    exported = [json.loads(line) for line in cli("audit", "export").out.splitlines()]
    assert [row["reason"] for row in exported] == ["quiet", "quiet"]


def test_doctor_is_content_with_a_healthy_database(cli: Cli, sync_conn: Conn) -> None:
    sync_conn.execute("update penstock.schedule set next_run_at = penstock.clock()")
    ran = cli("doctor", "--json")
    # The servers of tests are not durable on purpose, and doctor must say so.
    assert {finding["check"] for finding in ran.document["findings"]} == {"durability"}
    assert "listen" in ran.document["passed"]
    assert ran.code == 1


def test_doctor_names_dead_letters_pauses_and_a_queue_nobody_works(
    cli: Cli, dead_events: list[UUID], sync_conn: Conn
) -> None:
    sync_conn.execute("select penstock.pause_target('topic/x', 'quiet')")
    sync_conn.execute("insert into public.outbox (topic, payload) values ('orders.paid', '{}')")
    sync_conn.execute("update public.outbox set created_at = created_at - interval '1 hour'")
    ran = cli("doctor")
    assert ran.code == 1
    assert "outbox has 3 dead letters" in ran.out
    assert "penstock dead list outbox --group" in ran.out
    assert "outbox is not draining, no live worker" in ran.out
    assert "topic/x is paused" in ran.out


def _findings(cli: Cli, check: str) -> list[str]:
    found = cli("doctor", "--json").document["findings"]
    return [one["finding"] for one in found if one["check"] == check]


def _live_worker(conn: Conn, *queues: str) -> None:
    conn.execute(
        "select penstock.heartbeat(gen_random_uuid(), 'box', 1, '0.1', %s)", (list(queues),)
    )


def test_doctor_blames_no_worker_for_jobs_of_a_product_that_is_not_in_use(
    cli: Cli, sync_conn: Conn
) -> None:
    sync_conn.execute("update penstock.schedule set next_run_at = now() - interval '3 days'")
    _live_worker(sync_conn, "outbox")
    late = {text.split()[1] for text in _findings(cli, "jobs")}
    assert "outbox_alerts" in late
    assert not late & {"payments_reap", "payments_chain", "inbox_keep"}
    _live_worker(sync_conn, "payments")
    late = {text.split()[1] for text in _findings(cli, "jobs")}
    assert "payments_reap" in late
    assert "inbox_keep" not in late


def test_doctor_names_the_topic_that_nobody_takes(cli: Cli, sync_conn: Conn) -> None:
    sync_conn.execute("select app.outbox_register('{python/a}', '{a}', '{python}')")
    sync_conn.execute("insert into public.outbox (topic, payload) values ('lonely', '{}')")
    sync_conn.execute("update public.outbox set created_at = created_at - interval '1 hour'")
    assert _findings(cli, "topics") == []  # nobody runs: handlers may still come
    _live_worker(sync_conn, "outbox")
    (found,) = _findings(cli, "topics")
    assert "no handler or route takes topic lonely: 1 waiting" in found
    assert _findings(cli, "draining") == []
    sync_conn.execute("insert into public.outbox (topic, payload) values ('a', '{}')")
    assert len(_findings(cli, "topics")) == 1
    assert "outbox falls behind" in _findings(cli, "draining")[0]


def test_doctor_names_the_rail_that_no_worker_has(cli: Cli, sync_conn: Conn) -> None:
    sync_conn.execute(
        "select public.enqueue_payment_outbox('i1', 'p1', 'k', 'pigeon', %s::jsonb)", (PAYLOAD,)
    )
    (found,) = _findings(cli, "rails")
    assert "no worker has declared rail pigeon: 1 payments wait" in found
    sync_conn.execute(
        "select public.put_payment_rail('pigeon', '{\"idempotent\": false}', 'declared')"
    )
    assert _findings(cli, "rails") == []


def test_doctor_finds_who_holds_an_old_snapshot(
    cli: Cli, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.kernel.checks.server.SNAPSHOT_AGE_MAX_S", 0)
    with psycopg.connect(database_url, application_name="metabase") as forgotten:
        forgotten.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        forgotten.execute("select 1")
        pid = forgotten.info.backend_pid
        ran = cli("doctor")
        forgotten.rollback()
    assert f"pid {pid} (app=metabase" in ran.out
    assert f"select pg_terminate_backend({pid});" in ran.out


def test_doctor_on_an_empty_database_names_the_missing_schema(
    capsys: pytest.CaptureFixture[str], empty_url: str
) -> None:
    ran = make_cli(capsys, "--database", empty_url)("doctor", "--json")
    assert ran.code == 1
    schema = [one for one in ran.document["findings"] if one["check"] == "schema"]
    assert len(schema) == 1
    assert "penstock migrate" in schema[0]["remedy"]
    assert {"dead letters", "budget"} <= {one["check"] for one in ran.document["skipped"]}


@pytest.mark.parametrize("where", ["gone", "empty"])
def test_doctor_looks_at_the_ledger_where_one_is_named(
    cli: Cli, empty_url: str, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    gone = "postgres://app:hunter2@127.0.0.1:1/none"
    monkeypatch.setenv("PENSTOCK_LEDGER_URL", gone if where == "gone" else empty_url)
    ran = cli("doctor", "--json")
    (found,) = [one for one in ran.document["findings"] if one["check"] == "ledger"]
    assert "ledger database" in found["finding"]
    assert "hunter2" not in ran.out


def test_a_server_that_is_not_there_gives_exit_code_3(capsys: pytest.CaptureFixture[str]) -> None:
    cli = make_cli(capsys, "--database", "postgres://nobody:hunter2@127.0.0.1:1/none")
    for command in ("stats", "doctor"):
        ran = cli(command)
        assert ran.code == 3
        assert ran.err.startswith("PN003 database not reachable")
        assert "hunter2" not in ran.out + ran.err


def test_a_server_that_does_not_let_us_in_gives_exit_code_3_and_says_why(
    capsys: pytest.CaptureFixture[str], empty_url: str
) -> None:
    missing = empty_url.replace(urlsplit(empty_url).path, "/nowhere", 1)
    assert missing != empty_url
    for command in ("stats", "doctor"):
        ran = make_cli(capsys, "--database", missing)(command)
        assert ran.code == 3
        assert ran.err.startswith("PN003 database not reachable")
        assert "nowhere" in ran.err
        assert "penstock config" in ran.err


def test_a_database_without_schema_gives_exit_code_4(
    capsys: pytest.CaptureFixture[str], empty_url: str
) -> None:
    ran = make_cli(capsys, "--database", empty_url)("stats")
    assert ran.code == 4
    assert "penstock migrate" in ran.err
