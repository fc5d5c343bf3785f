"""The files of the repository, for tests that read them."""

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
FOLDERS = ("src", "tests", "tools")


@cache
def python_files(*folders: str) -> tuple[Path, ...]:
    """Every Python file under the folders, all of ours if none is named."""
    return tuple(
        path for folder in folders or FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))
    )


@cache
def sql_files() -> tuple[Path, ...]:
    """Every SQL file of the package."""
    return tuple(sorted((ROOT / "src").rglob("*.sql")))


@cache
def parsed(path: Path) -> ast.Module:
    """The syntax tree of one file."""
    return ast.parse(path.read_text("utf-8"), str(path))
