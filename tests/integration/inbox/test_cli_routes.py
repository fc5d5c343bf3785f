"""`penstock source route`, and sources and their routes in a policy file."""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.support.cli import Cli, make_cli

SURE = ("--reason", "test", "--yes")
POLICY = """
[source.stripe]
provider = "stripe"
secret_refs = ["env:STRIPE_SECRET"]
tolerance_s = 60

[source.hub]
provider = "github"
secret_refs = ["env:HUB_SECRET"]
options = {rate_per_s = 50}

[source_route."stripe/charge.*"]
kind = "http"
target = "https://billing.example/in"
secret_ref = "env:ROUTE_SECRET"
"""


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], database_url: str) -> Cli:
    return make_cli(capsys, "--database", database_url)


@pytest.fixture
def sql(database_url: str) -> Iterator[Any]:
    with psycopg.connect(database_url, autocommit=True) as conn:
        yield conn


@pytest.fixture
def stripe(cli: Cli) -> None:
    given = ("--provider", "stripe", "--secret", "env:STRIPE_SECRET")
    assert cli("source", "add", "stripe", *given, *SURE).code == 0


@pytest.mark.usefixtures("stripe")
def test_a_route_is_added_listed_replaced_and_removed(cli: Cli, sql: Any) -> None:
    added = ("source", "route", "add", "stripe", "charge.*")
    assert cli(*added, "https://a.example/in", "--secret", "env:HOOK", *SURE).code == 0
    assert cli(*added, "https://b.example/in", *SURE).code == 0
    (listed,) = cli("--json", "source", "route", "list").document
    assert listed == {
        "source": "stripe",
        "pattern": "charge.*",
        "kind": "http",
        "target": "https://b.example/in",
        "secret_ref": None,
        "enabled": True,
    }
    assert cli("source", "route", "remove", "stripe", "charge.*", *SURE).code == 0
    assert cli("--json", "source", "route", "list").document == []
    assert cli("source", "route", "remove", "stripe", "charge.*", *SURE).code == 1
    rows = sql.execute("select operation from audit.audit_logs order by at").fetchall()
    assert [row[0] for row in rows] == ["put_source", "put_route", "put_route", "remove_route"]


@pytest.mark.usefixtures("stripe")
def test_a_route_to_a_function_needs_the_owners_word(cli: Cli, sql: Any) -> None:
    added = ("source", "route", "add", "stripe", "*", "public.take", *SURE)
    assert cli(*added).code == 5
    sql.execute("insert into webhook.route_functions values ('public.take')")
    assert cli(*added).code == 0
    assert sql.execute("select kind from webhook_routes").fetchone()[0] == "sql"
    assert cli(*added, "--secret", "env:HOOK").code == 2


def test_what_makes_no_route_is_refused_and_no_secret_repeated(cli: Cli, stripe: None) -> None:
    added = ("source", "route", "add", "stripe", "*", "https://a.example/in")
    ran = cli(*added, "--secret", "whsec_written_down", *SURE)
    assert (ran.code, "whsec_written_down" in ran.out + ran.err) == (2, False)
    assert cli(*added, "--reason", "no terminal").code == 5
    assert cli("source", "route", "add", "nobody", "*", "https://a.example", *SURE).code == 1


def test_sources_and_their_routes_are_applied_once_and_exported(
    cli: Cli, sql: Any, tmp_path: Path
) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(POLICY)
    applied = cli("apply", str(file), *SURE)
    assert applied.code == 0, applied.err
    query = "select source, timestamp_signed, tolerance_s from webhook_endpoints order by source"
    assert sql.execute(query).fetchall() == [("hub", False, 300), ("stripe", True, 60)]
    (route,) = cli("--json", "source", "route", "list").document
    assert (route["source"], route["pattern"], route["enabled"]) == ("stripe", "charge.*", True)
    assert "nothing to change" in cli("apply", str(file), *SURE).out
    exported = cli("export").out
    document = tomllib.loads(exported)
    assert document["source"]["hub"]["options"] == {"rate_per_s": 50}
    assert document["source_route"]["stripe/charge.*"]["secret_ref"] == "env:ROUTE_SECRET"
    file.write_text(exported)
    assert "nothing to change" in cli("apply", str(file), "--dry-run").out


def test_fields_that_a_file_does_not_name_stay(cli: Cli, sql: Any, tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(POLICY)
    assert cli("apply", str(file), *SURE).code == 0
    sql.execute("update webhook_endpoints set max_backlog = null")
    file.write_text(
        '[source.stripe]\nenabled = false\n[source_route."stripe/charge.*"]\nenabled = false\n'
    )
    assert cli("apply", str(file), *SURE).code == 0
    query = """
        select w.enabled, w.tolerance_s, w.secret_refs, w.max_backlog, r.enabled, r.target
        from webhook_endpoints w join webhook_routes r using (source)
    """
    kept = (False, 60, ["env:STRIPE_SECRET"], None, False, "https://billing.example/in")
    assert sql.execute(query).fetchall() == [kept]
    assert "nothing to change" in cli("apply", str(file), *SURE).out


def test_a_change_of_scheme_changes_how_long_events_are_remembered(
    cli: Cli, sql: Any, tmp_path: Path
) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(POLICY)
    assert cli("apply", str(file), *SURE).code == 0
    file.write_text('[source.stripe]\nprovider = "github"\n')
    assert cli("apply", str(file), *SURE).code == 0
    query = "select timestamp_signed from webhook_endpoints where source = 'stripe'"
    assert sql.execute(query).fetchone()[0] is False


@pytest.mark.parametrize(
    "text",
    [
        '[source.x]\nprovider = "nobody"\n',
        '[source.x]\nsecret_refs = ["env:S"]\n',
        '[source.x]\nprovider = "stripe"\nsecret_refs = ["whsec_written_down"]\n',
        '[source.x]\nprovider = "stripe"\ntimestamp_signed = true\n',
        '[source.x]\nprovider = "stripe"\nunhandled = "burn"\n',
        '[source_route.x]\nkind = "http"\ntarget = "https://a.example"\n',
        '[source_route."x/*"]\nkind = "http"\ntarget = "https://a.example"\n',
        '[source_route."x/*"]\nsecret_ref = "whsec_written_down"\n',
    ],
)
def test_a_file_that_makes_no_sense_changes_nothing(
    cli: Cli, sql: Any, tmp_path: Path, text: str
) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(text)
    ran = cli("apply", str(file), *SURE)
    assert ran.code in (1, 2), ran.err
    assert "whsec_written_down" not in ran.out + ran.err
    assert sql.execute("select count(*) from webhook_endpoints").fetchone()[0] == 0
