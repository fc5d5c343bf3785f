"""No SQL is put together from pieces: statements are constants, values are parameters."""

import ast
import re
from collections.abc import Iterator

import pytest
from tests.support.sources import ROOT, parsed, python_files

_STATEMENT = re.compile(
    r"\bselect\b.*\bfrom\b|\binsert\s+into\b|\bupdate\s+\S+\s+set\b|\bdelete\s+from\b",
    re.IGNORECASE | re.DOTALL,
)
# Utility statements (drop, grant, unlisten) take no parameters; their names must be quoted in.
_TAKES_PARAMETERS = re.compile(
    r"\s*(select|insert|update|delete|with|merge|call|do)\b", re.IGNORECASE
)
_RUNNERS = frozenset(
    {"execute", "executemany", "fetch", "fetchrow", "fetchval", "call", "cursor", "prepare"}
)


def text_of(node: ast.AST) -> str:
    """The constant parts of an expression, with a mark where something is put in."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else "?"
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(part) for part in node.values)
    if isinstance(node, ast.BinOp):
        return text_of(node.left) + text_of(node.right)
    return "?"


def is_built(node: ast.AST) -> bool:
    """Whether a text is made of parts that are not all constant."""
    if isinstance(node, ast.JoinedStr):
        return any(isinstance(part, ast.FormattedValue) for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mod):
        return not all(isinstance(part, ast.Constant) for part in (node.left, node.right))
    return is_formatted(node)


def is_formatted(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in {"format", "format_map", "join", "replace"}
        and isinstance(node.func.value, ast.Constant | ast.JoinedStr | ast.BinOp)
    )


def statement_of(node: ast.AST) -> str:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return text_of(node.func.value)
    return text_of(node)


def query_of(node: ast.Call) -> ast.expr | None:
    """The statement that a call sends to the server, if it sends one."""
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name not in _RUNNERS or not node.args:
        return None
    return node.args[1] if name == "call" and len(node.args) > 1 else node.args[0]


def offences(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        if is_built(node) and _STATEMENT.search(statement_of(node)):
            yield node
        query = query_of(node) if isinstance(node, ast.Call) else None
        if query is not None and is_built(query) and _TAKES_PARAMETERS.match(statement_of(query)):
            yield query


def test_no_statement_is_built_from_pieces() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"
        for path in python_files("src")
        for node in offences(parsed(path))
    ]
    assert found == []


@pytest.mark.parametrize(
    "code",
    [
        'f"select * from {table}"',
        '"delete from x where id = %s" % item',
        '"update x set y = " + value',
        '"insert into {} values (1)".format(table)',
        'conn.execute(f"select {function}()")',
        'call(conn, "select 1" + more)',
    ],
)
def test_the_check_finds_what_it_should(code: str) -> None:
    assert list(offences(ast.parse(code)))


@pytest.mark.parametrize(
    "code",
    [
        '"select * from x"',
        'f"select a seat, {name}"',
        'conn.execute("select $1", value)',
        '"select * " "from x"',
        "call(conn, QUERY, value)",
        'conn.execute(f"grant {role} to x")',
    ],
)
def test_the_check_leaves_alone_what_it_should(code: str) -> None:
    assert not list(offences(ast.parse(code)))
