"""No switched-off checks, no unfinished marks, no machine-made places in any file."""

import io
import re
import tokenize

from tests.support.sources import ROOT, python_files, sql_files

_FORBIDDEN = re.compile(
    r"noqa|type:\s*ignore|pragma|pylint|fmt:\s*(off|skip)|ruff:|mypy:|\bTODO\b|\bFIXME\b|\bXXX\b"
)


def test_no_check_is_switched_off_and_nothing_is_left_to_do() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{token.start[0]} {token.string}"
        for path in python_files()
        for token in tokenize.generate_tokens(io.StringIO(path.read_text("utf-8")).readline)
        if token.type == tokenize.COMMENT and _FORBIDDEN.search(token.string)
    ]
    assert found == []


def test_nothing_is_left_to_do_in_sql() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in sql_files()
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if "--" in line and re.search(r"\b(TODO|FIXME|XXX)\b", line)
    ]
    assert found == []
