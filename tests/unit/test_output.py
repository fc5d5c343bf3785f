import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from uuid import UUID

import pytest

from penstock.cli.output import Column, Output, age, plain, shown
from penstock.kernel.errors import LeaseLost, Refused
from penstock.kernel.secrets import Secret

ITEM = UUID("01890000-0000-7000-8000-000000000001")


@dataclass(frozen=True, slots=True)
class Thing:
    id: UUID
    at: datetime
    secret: Secret


def test_everything_becomes_json_and_secrets_stay_masked() -> None:
    thing = Thing(ITEM, datetime(2026, 1, 2, tzinfo=UTC), Secret("canary"))
    document = plain({"thing": thing, "d": Decimal("9.90"), "t": timedelta(seconds=3), "s": {1}})
    assert document == {
        "thing": {"id": str(ITEM), "at": "2026-01-02T00:00:00+00:00", "secret": "********"},
        "d": "9.90",
        "t": 3.0,
        "s": [1],
    }
    json.dumps(document)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "-"),
        (True, "yes"),
        (1234567, "1,234,567"),
        (1.25, "1.2"),
        ((), "-"),
        (("a", "b"), "a, b"),
        ({"a": 1}, '{"a": 1}'),
        (Secret("canary"), "********"),
    ],
)
def test_cells_are_made_for_people(value: object, expected: str) -> None:
    assert shown(value) == expected


def test_ages_are_clock_like() -> None:
    assert [age(value) for value in (None, -1, 59.9, 3661, 90_000)] == [
        "-",
        "00:00:00",
        "00:00:59",
        "01:01:01",
        "1d 01:00:00",
    ]


def test_a_table_is_aligned_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    Output().table(
        ["name", Column("count", right=True)],
        [{"name": "a", "count": 1000}, {"name": "long", "count": 2}],
    )
    assert capsys.readouterr().out.splitlines() == ["name  count", "a     1,000", "long      2"]


def test_a_table_is_a_list_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    Output(as_json=True).table(["name"], [{"name": "a", "more": None}])
    assert json.loads(capsys.readouterr().out) == [{"name": "a", "more": None}]


def test_with_json_only_the_document_goes_to_standard_output(
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = Output(as_json=True)
    out.plan(["about to"])
    out.say("by the way")
    out.done("it is done", audit_id=ITEM, count=3)
    captured = capsys.readouterr()
    assert json.loads(captured.out) == {"done": "it is done", "audit_id": str(ITEM), "count": 3}
    assert captured.err.splitlines() == ["  about to", "by the way"]


def test_a_plan_is_shown_even_when_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    out = Output(quiet=True)
    out.say("chatter")
    out.plan(["about to"])
    assert capsys.readouterr().out == "  about to\n"


def test_nobody_to_ask_means_refused_unless_yes() -> None:
    with pytest.raises(Refused, match="--yes"):
        Output().confirm("Really?", yes=False)
    Output().confirm("Really?", yes=True)


@pytest.mark.parametrize(("answer", "agreed"), [("y\n", True), ("n\n", False), ("\n", False)])
def test_on_a_terminal_the_answer_decides(
    answer: str, agreed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("click.termui.visible_prompt_func", lambda _prompt: answer.strip())
    if agreed:
        Output().confirm("Really?", yes=False)
        return
    with pytest.raises(Refused, match="not confirmed"):
        Output().confirm("Really?", yes=False)


def test_an_error_has_one_form_for_people_and_one_for_programs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Output().error(LeaseLost("gone"))
    assert capsys.readouterr().err.startswith("PN204 lease lost: gone\n  what happened ")
    Output(as_json=True).error(LeaseLost("gone"))
    document = json.loads(capsys.readouterr().out)
    assert document["error"]["code"] == "PN204"
    assert document["error"]["retryable"] is True
