"""Files and functions stay small enough to read; wide calls name their arguments."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.support.sources import ROOT, parsed, python_files, sql_files

FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 50
SQL_FUNCTION_LINES_MAX = 80
POSITIONAL_MAX = 3
SQL_FUNCTION = re.compile(r"create or replace function.*?^\$\w*\$;", re.DOTALL | re.MULTILINE)

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(path: Path) -> Iterator[Function]:
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def place(path: Path, node: ast.AST | None = None) -> str:
    line = f":{getattr(node, 'lineno', 0)}" if node else ""
    return f"{path.relative_to(ROOT)}{line}"


def test_no_file_is_too_long() -> None:
    long = {
        place(path): count
        for path in (*python_files(), *sql_files())
        if (count := len(path.read_text("utf-8").splitlines())) > FILE_LINES_MAX
    }
    assert long == {}


def test_no_python_function_is_too_long() -> None:
    long = {
        f"{place(path, node)} {node.name}": node.end_lineno - node.lineno + 1
        for path in python_files()
        for node in functions(path)
        if node.end_lineno and node.end_lineno - node.lineno + 1 > FUNCTION_LINES_MAX
    }
    assert long == {}


def test_no_sql_function_is_too_long() -> None:
    long = {
        place(path): count
        for path in sql_files()
        for body in SQL_FUNCTION.findall(path.read_text("utf-8"))
        if (count := len(body.splitlines())) > SQL_FUNCTION_LINES_MAX
    }
    assert long == {}


def positional(node: Function, *, method: bool) -> int:
    given = [*node.args.posonlyargs, *node.args.args]
    static = any(
        isinstance(one, ast.Name) and one.id == "staticmethod" for one in node.decorator_list
    )
    return len(given) - (1 if method and given and not static else 0)


def test_more_than_three_arguments_are_named() -> None:
    wide = []
    for path in python_files("src"):
        methods = {
            node
            for owner in ast.walk(parsed(path))
            if isinstance(owner, ast.ClassDef)
            for node in owner.body
        }
        wide += [
            f"{place(path, node)} {node.name}"
            for node in functions(path)
            if positional(node, method=node in methods) > POSITIONAL_MAX
        ]
    assert wide == []
