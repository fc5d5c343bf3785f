"""The operator commands work with the rights of their role, and no further."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit
from uuid import UUID

import psycopg
import pytest
from psycopg import sql
from tests.support.cli import Cli, make_cli

Conn = psycopg.Connection[tuple[object, ...]]


@pytest.fixture
def login_as(
    sync_conn: Conn, database_url: str, capsys: pytest.CaptureFixture[str]
) -> Iterator[object]:
    """A command line with a login of its own that has one role of ours."""
    made: list[str] = []

    def login(role: str) -> Cli:
        name = f"login_{role}_{sync_conn.info.dbname}"
        sync_conn.execute(
            sql.SQL("create role {} login in role {}").format(
                sql.Identifier(name), sql.Identifier(role)
            )
        )
        made.append(name)
        parts = urlsplit(database_url)
        address = parts.netloc.rpartition("@")[2]
        url = urlunsplit(parts._replace(netloc=f"{name}@{address}"))
        return make_cli(capsys, "--database", url)

    yield login
    for name in made:
        sync_conn.execute(sql.SQL("drop role {}").format(sql.Identifier(name)))


def test_an_operator_looks_and_acts(login_as: object, dead_events: list[UUID]) -> None:
    assert callable(login_as)
    cli: Cli = login_as("penstock_operator")
    chosen = str(dead_events[0])
    assert cli("stats").code == 0
    assert cli("show", chosen).code == 0
    assert cli("show", chosen, "--payload", "--reason", "ticket 7").code == 0
    assert cli("dead", "list").code == 1
    assert cli("dead", "replay", "outbox", chosen, "--reason", "x", "--yes").code == 0
    assert cli("pause", "outbox", "--reason", "x", "--yes").code == 0
    assert cli("resume", "outbox", "--yes").code == 0
    assert len(cli("audit", "list", "--json").document) == 4
    diagnosis = cli("doctor", "--json").document
    checks = {one["check"] for one in diagnosis["findings"]}
    assert checks <= {"durability", "dead letters", "jobs"}
    assert [one["check"] for one in diagnosis["skipped"]] == ["snapshots"]


def test_a_reader_looks_and_may_not_act(login_as: object, dead_events: list[UUID]) -> None:
    assert callable(login_as)
    cli: Cli = login_as("penstock_readonly")
    chosen = str(dead_events[0])
    assert cli("stats").code == 0
    assert cli("dead", "list").code == 1
    for arguments in (
        ("pause", "outbox", "--reason", "x", "--yes"),
        ("dead", "replay", "outbox", chosen, "--reason", "x", "--yes"),
        ("dead", "discard", "outbox", chosen, "--reason", "x", "--yes"),
        ("show", chosen, "--payload", "--reason", "x"),
        ("audit", "list"),
    ):
        ran = cli(*arguments)
        assert ran.code == 5, arguments
        assert "PN007" in ran.err


def test_an_auditor_reads_stories_without_payloads(
    login_as: object, dead_events: list[UUID]
) -> None:
    assert callable(login_as)
    cli: Cli = login_as("penstock_auditor")
    assert cli("show", str(dead_events[0])).code == 0
    assert cli("audit", "list").code == 0
    refused = cli("show", str(dead_events[0]), "--payload", "--reason", "curious")
    assert refused.code == 5
    assert "canary" not in refused.out


def test_policy_is_for_control_alone(login_as: object, tmp_path: Path) -> None:
    assert callable(login_as)
    file = tmp_path / "policy.toml"
    file.write_text("[queue.outbox]\nlease_s = 45\n")
    arguments = ("apply", str(file), "--reason", "x", "--yes")
    assert login_as("penstock_operator")(*arguments).code == 5
    assert login_as("penstock_control")(*arguments).code == 0
