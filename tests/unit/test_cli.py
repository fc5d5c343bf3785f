"""The command group itself: help, errors, global options; no database."""

import importlib
import json
from pathlib import Path
from typing import Any

import click
import pytest
from tests.support.cli import Cli, make_cli

from penstock.cli import main
from penstock.cli.commands import COMMANDS, CommandEntry
from penstock.cli.init import FILES
from penstock.cli.values import format_duration, parse_duration


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.chdir(tmp_path)
    for name in ("PENSTOCK_DATABASE_URL", "DATABASE_URL", "DB_URL"):
        monkeypatch.delenv(name, raising=False)
    return make_cli(capsys)


def test_help_lists_every_command_without_importing_one(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(main, "load", lambda name: pytest.fail(f"{name} was imported"))
    ran = cli("--help")
    assert ran.code == 0
    for name, entry in COMMANDS.items():
        assert f"  {name} " in ran.out
        assert entry.help in " ".join(ran.out.split())


def test_no_command_prints_help_and_is_wrong_usage(cli: Cli) -> None:
    ran = cli()
    assert ran.code == 2
    assert "Usage: penstock" in ran.out


def test_the_version_is_printed(cli: Cli) -> None:
    assert cli("--version").out.startswith("penstock 0.")


def test_an_unknown_command_and_option_are_wrong_usage_in_the_one_form(cli: Cli) -> None:
    for arguments in (("nonsense",), ("stats", "--nonsense"), ("pause", "outbox")):
        ran = cli(*arguments)
        assert ran.code == 2
        assert ran.err.startswith("PN005 wrong usage: ")
        assert "--help`" in ran.err


def test_errors_are_json_wherever_json_stands(cli: Cli) -> None:
    for arguments in (("--json", "stats"), ("stats", "--json"), ("stats", "--nonsense", "--json")):
        ran = cli(*arguments)
        assert ran.code == 2
        assert ran.document["error"]["code"] in {"PN002", "PN005"}


def test_without_a_database_nothing_is_started(cli: Cli, tmp_path: Path) -> None:
    ran = cli("stats")
    assert ran.code == 2
    assert ran.err.startswith("PN002 no database named")
    assert list(tmp_path.iterdir()) == []


def test_a_part_that_is_not_there_is_a_clear_error(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(COMMANDS, "ghost", CommandEntry("run", "penstock.cli.ghost:ghost", "Boo."))
    ran = cli("ghost")
    assert ran.code == 2
    assert "is not part of this build" in ran.err
    assert cli("--help").code == 0


def test_a_missing_dependency_names_its_extra(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.import_module

    def without_starlette(name: str, package: str | None = None) -> Any:
        if name == "penstock.cli.worker":
            raise ModuleNotFoundError("No module named 'starlette'", name="starlette.routing")
        return real(name, package)

    monkeypatch.setattr(importlib, "import_module", without_starlette)
    ran = cli("serve")
    assert ran.code == 2
    assert "PN004" in ran.err
    assert "penstock[server]" in ran.err


def failing(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    @click.command()
    def broken() -> None:
        raise error

    monkeypatch.setattr(main, "load", lambda _name: broken)


def test_an_unexpected_error_is_one_line_without_secrets(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, KeyError("postgres://app:canary@h/db"))
    ran = cli("stats")
    assert ran.code == 1
    assert ran.err.startswith("PN000 unexpected error: KeyError")
    assert "Traceback" not in ran.err
    loud = cli("stats", "-v")
    assert "Traceback" in loud.err
    assert "canary" not in ran.err + loud.err


def test_a_driver_error_is_translated(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, ExceptionGroup("all", [ConnectionRefusedError("no")]))
    assert cli("stats").code == 3


def test_an_interrupt_is_no_error_report(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(main, "load", lambda _name: interrupted)
    ran = cli("stats")
    assert ran.code == 130
    assert ran.err.strip().endswith("interrupted")


def test_a_typo_in_failpoints_stops_every_command(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_FAILPOINTS", "after_clam=kill")
    ran = cli("config")
    assert ran.code == 2
    assert "unknown failpoint" in ran.err


def test_config_shows_values_masked_with_their_source(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_ADMIN_KEY", "canary")
    monkeypatch.setenv("PENSTOCK_OUTBOX_SECRETS", "canary1,canary2")
    ran = cli("--database", "postgres://app:canary@h/db", "config", "--json")
    rows = {row["setting"]: row for row in ran.document}
    assert "canary" not in ran.out
    assert rows["database_url"]["value"] == "postgres://app:********@h/db"
    assert rows["database_url"]["source"] == "command line"
    assert rows["admin_key"]["source"] == "PENSTOCK_ADMIN_KEY"
    assert rows["pool_size"] == {**rows["pool_size"], "value": 10, "source": "default"}
    changed = cli("config", "--changed", "--json").document
    assert {row["setting"] for row in changed} == {"admin_key", "outbox_secrets"}


def test_explain_works_offline_and_with_broken_settings(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_NONSENSE", "1")
    assert "lease lost" in cli("explain", "pn204").out
    assert cli("explain", "204", "--json").document["code"] == "PN204"
    assert "PN301" in cli("explain").out
    unknown = cli("explain", "PN299")
    assert unknown.code == 2
    assert "did you mean" in unknown.err


def test_init_writes_files_that_parse_and_never_overwrites(cli: Cli, tmp_path: Path) -> None:
    ran = cli("init", "shop", "--json")
    assert ran.code == 0
    written = {Path(path).name for path in json.loads(ran.out)["written"]}
    assert written == set(FILES)
    for name in ("app.py", "test_app.py"):
        compile((tmp_path / "shop" / name).read_text(), name, "exec")
    assert cli("--config", "shop/penstock.toml", "config").code == 0
    (tmp_path / "shop" / "app.py").write_text("mine")
    again = cli("init", "shop")
    assert again.code == 5
    assert (tmp_path / "shop" / "app.py").read_text() == "mine"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("45s", 45), ("30m", 1800), ("1h30m", 5400), ("7d", 604_800), ("2w", 1_209_600)],
)
def test_durations_are_read_and_written_back(text: str, seconds: int) -> None:
    assert parse_duration(text).total_seconds() == seconds
    assert parse_duration(format_duration(seconds)).total_seconds() == seconds


@pytest.mark.parametrize("text", ["", "30", "m", "30x", "-5m", "5m later", "\uff15m"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no duration"):
        parse_duration(text)


def test_a_command_that_is_nearly_one_is_named(cli: Cli) -> None:
    ran = cli("stat")
    assert ran.code == 2
    assert "did you mean `penstock stats`?" in ran.err
    assert "Did you mean 'list'?" in cli("destination", "lst").err
    assert "did you mean" not in cli("nonsense").err


def test_config_shows_numbers_as_they_are_typed(cli: Cli) -> None:
    (line,) = [text for text in cli("config").out.splitlines() if text.startswith("port ")]
    assert line.split()[1] == "8400"


def test_an_error_without_words_of_its_own_says_its_title_once(cli: Cli) -> None:
    assert cli("stats").err.splitlines()[0] == "PN002 no database named"


@pytest.mark.parametrize("noun", ["source", "destination"])
@pytest.mark.parametrize("given", [(), ("--secret", "env:NEW", "--finish"), ("--secret", "s3cr3t")])
def test_rotating_takes_one_new_reference_or_ends_the_old_ones(
    cli: Cli, noun: str, given: tuple[str, ...]
) -> None:
    ran = cli(noun, "rotate", "acme", *given, "--reason", "r", "--yes")
    assert ran.code == 2
    assert ran.err.startswith("PN005 wrong usage: ")
    assert "s3cr3t" not in ran.out + ran.err
