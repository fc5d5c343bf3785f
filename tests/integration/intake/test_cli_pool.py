"""`penstock pool`: what it prints, what it changes, and its audit rows."""

from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from tests.support.cli import Cli, make_cli

ACT = ("--reason", "test", "--yes")


@pytest.fixture
def cli(
    capsys: pytest.CaptureFixture[str], database_url: str, monkeypatch: pytest.MonkeyPatch
) -> Cli:
    for name in ("PENSTOCK_DATABASE_URL", "DATABASE_URL", "DB_URL"):
        monkeypatch.delenv(name, raising=False)
    return make_cli(capsys, "--database", database_url)


def ask(url: str, query: str) -> object:
    with psycopg.connect(url) as conn:
        row = conn.execute(query.encode()).fetchone()
        assert row is not None
        return row[0]


def test_a_pool_is_seeded_once_and_listed(cli: Cli) -> None:
    assert cli("pool", "list", "--json").document == []
    first = cli("pool", "seed-demo", "--yes", "--json")
    assert first.document["count"] == 1000
    assert cli("pool", "seed-demo", "--yes", "--json").document["count"] == 0
    (row,) = cli("pool", "list", "--json").document
    assert (row["pool"], row["available"], row["sells"]) == ("demo_concert_2026", 1000, True)
    assert "1,000" in cli("pool", "list").out
    assert cli("pool", "show", "demo_concert_2026").code == 0
    assert cli("pool", "show", "nothing").code == 1


def test_stock_comes_by_number_or_by_ids_and_is_all_or_nothing(
    cli: Cli, database_url: str, tmp_path: Path
) -> None:
    assert cli("pool", "stock", "p", "--count", "25", *ACT).code == 0
    ids = [str(uuid4()) for _ in range(10)]
    file = tmp_path / "ids.txt"
    file.write_text("\n".join(ids) + "\n")
    assert cli("pool", "stock", "p", "--ids", str(file), *ACT, "--json").document["count"] == 10
    assert cli("pool", "stock", "p", "--ids", str(file), *ACT).code != 0
    file.write_text("\n".join([str(uuid4()), ids[0]]))
    assert cli("pool", "stock", "p", "--ids", str(file), *ACT).code != 0
    assert ask(database_url, "select count(*) from inventory_slots") == 35
    file.write_text("nonsense")
    assert cli("pool", "stock", "p", "--ids", str(file), *ACT).code == 2
    assert cli("pool", "stock", "p", *ACT).code == 2


def test_opening_closing_limits_and_times_are_audited(cli: Cli, database_url: str) -> None:
    cli("pool", "seed-demo", "--name", "p", "--count", "5", "--yes")
    claim = "select outcome from intake_reserve('p', array['alice'])"
    assert cli("pool", "close", "p", *ACT).code == 0
    assert ask(database_url, claim) == "not_open"
    assert cli("pool", "open", "p", *ACT).code == 0
    assert cli("pool", "limit", "p", "--per-user", "1", *ACT).code == 0
    assert ask(database_url, claim) == "reserved"
    assert ask(database_url, claim) == "limit_reached"
    assert cli("pool", "schedule", "p", "--opens", "2999-01-01T00:00Z", *ACT).code == 0
    assert ask(database_url, claim.replace("alice", "bob")) == "not_open"
    shown = cli("pool", "show", "p", "--json").document
    assert (shown["max_per_user"], shown["opens_at"][:4]) == (1, "2999")
    assert cli("pool", "limit", "p", "--none", *ACT).code == 0
    assert cli("pool", "show", "p", "--json").document["max_per_user"] is None
    audits = "select count(*) from audit.audit_logs where operation = 'pool_set'"
    assert ask(database_url, audits) == 5


def test_nothing_changes_without_a_yes_or_with_contradicting_options(
    cli: Cli, database_url: str
) -> None:
    assert cli("pool", "stock", "p", "--count", "5", "--reason", "x").code == 5
    assert cli("pool", "limit", "p", *ACT).code == 2
    backwards = ("--opens", "2030-01-02", "--closes", "2030-01-01")
    assert cli("pool", "schedule", "p", *backwards, *ACT).code == 2
    assert ask(database_url, "select count(*) from inventory_slots") == 0


def test_pools_are_part_of_a_policy_file(cli: Cli, database_url: str, tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text('[pool.p]\nmax_per_user = 2\ncommit_webhook_url = "https://example.org/c"\n')
    applied = cli("apply", str(file), *ACT)
    assert applied.code == 0, applied.err
    assert ask(database_url, "select max_per_user from intake_pools where pool_id = 'p'") == 2
    assert "max_per_user = 2" in cli("export").out


def test_dead_letters_of_intake_are_replayed_by_the_common_command(
    cli: Cli, database_url: str
) -> None:
    cli("pool", "seed-demo", "--name", "p", "--count", "2", "--yes")
    with psycopg.connect(database_url, autocommit=True) as conn:
        conn.execute("select from intake_reserve('p', array['a', 'b'])")
        conn.execute(
            "select intake_route_to_dlq(msg_id, '{}', read_ct, 'TEST') from intake_claim(10)"
        )
    listed = cli("dead", "list", "intake", "--json")
    assert (listed.code, len(listed.document)) == (1, 2), listed.err
    replayed = cli("dead", "replay", "intake", "--code", "TEST", *ACT)
    assert replayed.code == 0, replayed.err
    assert ask(database_url, "select count(*) from pgmq.q_intake_dlq") == 0
    assert ask(database_url, "select count(*) from pgmq.q_intake_queue") == 2


def test_policy_without_intake_in_the_database_is_not_disturbed(
    capsys: pytest.CaptureFixture[str], empty_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PENSTOCK_DATABASE_URL", raising=False)
    cli = make_cli(capsys, "--database", empty_url)
    assert cli("migrate", "--only", "outbox").code == 0
    exported = cli("export")
    assert exported.code == 0, exported.err
    assert '[queue."outbox"]' in exported.out
