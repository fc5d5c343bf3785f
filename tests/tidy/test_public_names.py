"""The public face is what `penstock.__all__` says, and every name of it is there."""

import importlib
import re

import pytest
from tests.support.sources import ROOT

import penstock
from penstock.kernel.settings import TABLE

# The contract with users: a name leaves this list only with a release that says so.
PROMISED = {
    "AsyncConn",
    "Attempt",
    "Batch",
    "Done",
    "Event",
    "Penstock",
    "PublishOptions",
    "Reject",
    "Retry",
    "Settings",
    "SyncConn",
    "Topic",
    "Tx",
    "Unknown",
    "Verdict",
    "WorkReport",
}


def test_promised_names_are_exported() -> None:
    assert set(penstock.__all__) >= PROMISED
    assert list(penstock.__all__) == sorted(set(penstock.__all__))


@pytest.mark.parametrize("name", penstock.__all__)
def test_every_exported_name_is_there(name: str) -> None:
    assert getattr(importlib.import_module("penstock"), name) is not None


def test_every_variable_of_the_example_environment_is_known() -> None:
    known = {name for row in TABLE.values() for name in row.env_names}
    text = (ROOT / ".env.example").read_text("utf-8")
    named = set(re.findall(r"^([A-Z0-9_]+)=", text, re.MULTILINE))
    assert named <= known
    assert {f"DB{number}_SUPABASE_URL" for number in (1, 2)} <= named
