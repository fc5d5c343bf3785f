"""What the code knows, the reference says: settings, codes, commands, events, metrics."""

import importlib.util
from types import ModuleType

import click
import pytest
from tests.support.sources import ROOT

from penstock.cli.commands import COMMANDS, SECTIONS
from penstock.cli.main import load
from penstock.kernel.settings import TABLE


def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference", ROOT / "tools" / "reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "name", ["settings.md", "errors.md", "cli.md", "events.md", "openapi.json"]
)
def test_the_reference_is_what_the_code_says(name: str) -> None:
    written = (ROOT / "docs" / "reference" / name).read_text("utf-8")
    assert written == tool().render(name), "run `make fmt`"


def test_every_setting_is_explained_and_named_with_its_unit() -> None:
    for name, row in TABLE.items():
        assert row.spec.doc.endswith("."), name
        assert not name.endswith(("_seconds", "_milliseconds", "_size_mb")), name


def test_groups_of_settings_stand_together() -> None:
    groups = [row.spec.group for row in TABLE.values()]
    assert [
        group for group, before in zip(groups, [None, *groups], strict=False) if group != before
    ] == list(dict.fromkeys(groups))


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_of_the_table_is_there_and_explained(name: str) -> None:
    found = load(name)
    assert COMMANDS[name].section in SECTIONS
    assert COMMANDS[name].help.endswith(".")
    inner = list(found.commands.values()) if isinstance(found, click.Group) else []
    for command in (found, *inner):
        assert command.help, f"{name} {command.name} has no help"
