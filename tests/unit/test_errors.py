import re
import subprocess
import sys
import traceback

import pytest

from penstock.kernel import errors
from penstock.kernel.catalogue import CATALOGUE
from penstock.kernel.errors import LeaseLost, PenstockError, WrongUsage, error_for
from penstock.kernel.grants import missing_grant


def classes() -> list[type[PenstockError]]:
    return [
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, PenstockError)
    ]


def test_every_class_has_its_own_code_and_an_entry() -> None:
    codes = [cls.code for cls in classes()]
    assert len(set(codes)) == len(codes)
    assert set(codes) <= set(CATALOGUE)


def test_the_tree_in_the_docstring_is_complete() -> None:
    drawn = dict(re.findall(r"(\w+) +(PN\d{3})", errors.__doc__ or ""))
    assert drawn == {cls.__name__: cls.code for cls in classes()}


def test_entries_are_whole_and_within_the_agreed_exit_codes() -> None:
    for code, entry in CATALOGUE.items():
        assert re.fullmatch(r"PN[0-7]\d\d", code)
        assert entry.code == code
        assert entry.title
        assert entry.happened.endswith(".")
        assert entry.todo.endswith(".") or "`" in entry.todo
        assert entry.exit_code in {1, 2, 3, 4, 5}
        assert 400 <= entry.http_status <= 599


def test_an_error_explains_itself_in_the_one_form() -> None:
    text = LeaseLost("event 1 was taken over", happened="it took 41 s.", todo="raise it.").explain()
    assert text.splitlines() == [
        "PN204 lease lost: event 1 was taken over",
        "  what happened   it took 41 s.",
        "  what to do      raise it.",
        "  more            penstock explain PN204",
    ]


def test_the_catalogue_fills_what_is_not_said() -> None:
    error = WrongUsage()
    assert error.what == CATALOGUE["PN005"].title
    assert error.todo == CATALOGUE["PN005"].todo


def test_a_code_that_sql_raised_finds_its_class() -> None:
    assert type(error_for("PN204", "x")) is LeaseLost
    assert type(error_for("PN999", "x")) is PenstockError


def test_a_code_is_told_whether_or_not_its_module_was_imported() -> None:
    """In a process of its own: here, other tests have imported everything."""
    query = (
        "import sys; from penstock.kernel.errors import error_for; error = error_for('PN506', 'x');"
        " assert 'penstock.payments.errors' not in sys.modules;"
        " print(error.explain().splitlines()[0], error.entry.exit_code);"
        " from penstock.payments.errors import ReconcileFirst;"
        " print(type(error_for('PN506', 'x')) is ReconcileFirst)"
    )
    ran = subprocess.run([sys.executable, "-c", query], capture_output=True, text=True, check=True)
    entry = CATALOGUE["PN506"]
    assert ran.stdout.splitlines() == [f"PN506 {entry.title}: x {entry.exit_code}", "True"]


def test_a_class_without_an_entry_cannot_be_made() -> None:
    with pytest.raises(AssertionError, match="without a catalogue entry"):
        type("Stray", (PenstockError,), {"code": "PN999"})


def test_a_traceback_shows_the_remedy() -> None:
    error = WrongUsage("no such option", todo="see --help.")
    shown = "".join(traceback.format_exception(error))
    assert "what to do: see --help. (penstock explain PN005)" in shown


@pytest.mark.parametrize(
    ("message", "roles"),
    [
        ("permission denied for function outbox_put_destination", {"penstock_control"}),
        ("permission denied for function outbox_replay", {"penstock_operator"}),
        ("permission denied for function outbox_publish", {"penstock_outbox_ingest"}),
        (
            "permission denied for table outbox",
            {"penstock_outbox_executor", "penstock_outbox_ingest"},
        ),
        ("permission denied for schema audit", {"ROLE"}),
    ],
)
def test_a_missing_right_is_named_by_the_command_that_gives_it(
    message: str, roles: set[str]
) -> None:
    remedy = missing_grant(message)
    assert set(re.findall(r"penstock grant (\w+) to LOGIN --reason", remedy)) == roles


def test_remedies_name_what_exists() -> None:
    assert "PENSTOCK_HTTP_ALLOW_PRIVATE" in CATALOGUE["PN704"].todo
    assert "doctor" not in CATALOGUE["PN003"].todo, "it could not reach the database either"
