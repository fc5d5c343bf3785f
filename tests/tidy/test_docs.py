"""The docs say nothing that is not there: links, examples, commands, codes, settings, SQL names."""

import ast
import importlib
import importlib.util
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import get_args

import click
import pytest

from penstock.cli.commands import COMMANDS
from penstock.cli.main import global_options, load
from penstock.kernel.catalogue import CATALOGUE
from penstock.kernel.errors import PenstockError
from penstock.kernel.settings import TABLE
from penstock.kernel.settings.names import is_process_variable
from penstock.kernel.verdict import Verdict

ROOT = Path(__file__).parents[2]
NOUNS = set(
    re.findall(
        r"\S+",
        "item queue event topic lease token epoch attempt verdict dead held pump lane keeper worker"
        " handler wake-up position watermark sweep sink destination source reservation slot pool"
        " ledger policy setting job observation product migration",
    )
)
FILE_NAMES = {"penstock.toml", "penstock.fish", "app.py"}
ADR_SECTIONS = ["Context", "Decision", "Alternatives", "Consequences"]
# Put together from parts, so that this file does not hold what it looks for.
MACHINE_PATHS = re.compile(
    r"(?<![\w.~-])/(?:" + "|".join(["ho" + "me", "ro" + "ot", "Us" + "ers", "wo" + "rk"]) + r")/\w"
)
REGISTRY_HOSTS = re.compile(
    "|".join(
        re.escape(host)
        for host in (
            "py" + "pi.org",
            "python" + "hosted.org",
            "registry." + "npmjs",
            "gh" + "cr.io",
            "docker." + "io",
            "arti" + "factory",
            "index" + "-url",
        )
    ),
    re.IGNORECASE,
)
LINK = re.compile(r"(?<!!)\[[^\]\n]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^( *)```([^\n`]*)\n(.*?)^\1```\s*$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`([^`\n]+)`")
REPOSITORY_PATH = re.compile(r"(?<![\w/.])(?:src|tests|tools|docs|examples)/[\w./-]*\w")
PLACEHOLDER = re.compile(r"PRODUCT|NAME|NNNN")
SQL_NAME = re.compile(r"\b(?:app|audit|penstock|public)\.[a-z][a-z0-9_]*(?![\w./-])")


@cache
def tracked() -> tuple[Path, ...]:
    """What git knows, or would add; without git, what lies there."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listed.returncode == 0:
        names = listed.stdout.decode().split("\0")
        found = (ROOT / name for name in names if name)
    else:
        found = (p for p in ROOT.rglob("*") if not {".venv", ".git"} & set(p.parts))
    return tuple(sorted(path for path in found if path.is_file()))


@cache
def pages() -> tuple[Path, ...]:
    """Every page of documentation."""
    return tuple(path for path in tracked() if path.suffix == ".md")


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def text_of(path: Path) -> str:
    return path.read_text("utf-8")


def prose_of(path: Path) -> str:
    """The page without its fenced blocks."""
    return FENCE.sub("", text_of(path))


def blocks_of(path: Path) -> Iterator[tuple[str, str]]:
    """The info string and the text of each fenced block."""
    for indent, info, body in FENCE.findall(text_of(path)):
        yield info.strip(), "\n".join(line.removeprefix(indent) for line in body.splitlines())


def anchors_of(path: Path) -> set[str]:
    """The anchors of a page's headings, as common renderers make them."""
    headings = re.findall(r"^#+ (.+)$", prose_of(path), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.strip().lower()).replace(" ", "-") for h in headings}


def broken_links(path: Path) -> Iterator[str]:
    for target in LINK.findall(prose_of(path)):
        if re.match(r"[a-z]+:", target):
            continue
        place, _, anchor = target.partition("#")
        found = (path.parent / place).resolve() if place else path
        if not found.exists():
            yield f"{name_of(path)}: {target} is not there"
        elif anchor and found.suffix == ".md" and anchor not in anchors_of(found):
            yield f"{name_of(path)}: {target} names no heading"


def test_every_relative_link_resolves() -> None:
    assert pages(), "no page was found"
    assert [finding for page in pages() for finding in broken_links(page)] == []


def missing_paths(path: Path) -> Iterator[str]:
    """Paths of the repository that a page names in code and that are not there."""
    for code in CODE.findall(prose_of(path)):
        for name in REPOSITORY_PATH.findall(code):
            if not PLACEHOLDER.search(name) and not (ROOT / name).exists():
                yield f"{name_of(path)}: {name} is not there"


def test_paths_of_the_repository_named_in_docs_exist() -> None:
    assert [finding for page in pages() for finding in missing_paths(page)] == []


def runnable_blocks() -> list[tuple[str, str]]:
    found = []
    for page in pages():
        if page.parent.name in {"how-to", "tutorials"}:
            found += [(name_of(page), body) for info, body in blocks_of(page) if is_runnable(info)]
    return found


def is_runnable(info: str) -> bool:
    return info.split()[:2] == ["python", "runnable"]


def missing_imports(source: str) -> Iterator[str]:
    """Names that a block imports from our package and that are not there."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "penstock":
            module = importlib.import_module(node.module or "")
            yield from (
                f"{node.module}.{alias.name}"
                for alias in node.names
                if not hasattr(module, alias.name)
            )


def test_runnable_examples_compile_and_import_what_exists() -> None:
    found = runnable_blocks()
    assert found, "no runnable example was found"
    for page, source in found:
        compile(source, page, "exec")
        assert list(missing_imports(source)) == [], page


def command_lines() -> list[tuple[str, list[str]]]:
    """Every `penstock …` of a shell block, as words."""
    found = []
    for page in pages():
        for info, body in blocks_of(page):
            if info.split()[:1] != ["sh"]:
                continue
            for line in body.replace("\\\n", " ").splitlines():
                words = shlex.split(line.strip().removeprefix("$ "), comments=True)
                if words[:1] == ["penstock"]:
                    found.append((name_of(page), words[1:]))
    return found


def without_global_options(words: list[str]) -> list[str]:
    options = {text: option for option in global_options() for text in option.opts}
    rest = list(words)
    while rest and rest[0] in options:
        taken = 1 if options[rest[0]].is_flag or options[rest[0]].count else 2
        rest = rest[taken:]
    return rest


def unknown_parts(words: list[str]) -> Iterator[str]:
    """What a command line names and the command line interface does not have."""
    words = without_global_options(words)
    if not words or words[0].startswith("-"):
        return
    if words[0] not in COMMANDS:
        yield f"command {words[0]}"
        return
    try:
        command = load(words[0])
    except PenstockError:
        return  # its module or its extra is not in this build; the name is all that can be checked
    rest = words[1:]
    while isinstance(command, click.Group) and rest:
        inner = command.commands.get(rest[0])
        if inner is None:
            yield f"command {words[0]} {rest[0]}"
            return
        command, rest = inner, rest[1:]
    known = {text for option in (*command.params, *global_options()) for text in option.opts}
    for word in rest:
        option = word.partition("=")[0]
        if option.startswith("--") and option not in known | {"--help"}:
            yield f"option {option} of {words[0]}"


def test_commands_and_options_in_shell_blocks_exist() -> None:
    found = command_lines()
    assert found, "no command was found"
    unknown = {f"{page}: {part}" for page, words in found for part in unknown_parts(words)}
    assert unknown == set()


@pytest.mark.parametrize("line", ["pauze outbox", "dead lost", "pause outbox --becaus x"])
def test_a_wrong_command_line_is_noticed(line: str) -> None:
    assert list(unknown_parts(line.split())) != []


def test_commands_named_in_prose_exist() -> None:
    unknown = {
        f"{name_of(page)}: {code}"
        for page in pages()
        for code in CODE.findall(prose_of(page))
        if (words := code.split())[:1] == ["penstock"] and len(words) > 1
        for word in without_global_options(words[1:])[:1]
        if re.fullmatch(r"[a-z]+", word) and word not in COMMANDS
    }
    assert unknown == set()


def test_error_codes_named_in_docs_exist() -> None:
    named = {
        (name_of(page), code)
        for page in pages()
        for code in re.findall(r"\bPN\d{3}\b", text_of(page))
    }
    assert named, "no code was found"
    assert {found for found in named if found[1] not in CATALOGUE} == set()


def test_variables_named_in_docs_exist() -> None:
    known = {name for row in TABLE.values() for name in row.env_names}
    named = {
        (name_of(page), variable)
        for page in pages()
        for variable in re.findall(r"(?<!_)\bPENSTOCK_[A-Z_]*[A-Z]\b", text_of(page))
    }
    assert named, "no variable was found"
    assert {
        found for found in named if found[1] not in known and not is_process_variable(found[1])
    } == set()


@cache
def all_sql() -> str:
    return "\n".join(text_of(path) for path in tracked() if path.suffix == ".sql")


def is_known_name(name: str) -> bool:
    """Whether a dotted name is an object of our SQL or a module of ours."""
    if re.search(rf"\b{re.escape(name)}\b", all_sql()):
        return True
    if name in FILE_NAMES:
        return True
    return name.startswith("penstock.") and importlib.util.find_spec(name) is not None


def test_sql_objects_and_modules_named_in_docs_exist() -> None:
    named = {
        (name_of(page), name)
        for page in pages()
        for code in CODE.findall(prose_of(page))
        for name in SQL_NAME.findall(code)
    }
    assert named, "no name was found"
    assert {found for found in named if not is_known_name(found[1])} == set()


def test_the_glossary_has_every_noun_and_every_verdict() -> None:
    terms = set(re.findall(r"\*\*([^*]+)\*\*", text_of(ROOT / "docs" / "glossary.md")))
    verdicts = {kind.__name__.lower() for kind in get_args(Verdict)}
    assert {*NOUNS, *verdicts} - terms == set()


def test_the_glossary_has_no_term_twice() -> None:
    rows = re.findall(r"^\| \*\*([^*]+)\*\*", text_of(ROOT / "docs" / "glossary.md"), re.MULTILINE)
    assert len(rows) == len(set(rows))


def decision_pages() -> list[Path]:
    return sorted(page for page in pages() if page.parent == ROOT / "docs" / "adr")


def test_decisions_are_numbered_without_gaps_and_have_their_sections() -> None:
    found = decision_pages()
    assert [int(page.name[:4]) for page in found] == list(range(1, len(found) + 1))
    for page in found:
        text = text_of(page)
        assert text.startswith(f"# {page.name[:4]}. "), page.name
        assert re.findall(r"^## (.+)$", text, re.MULTILINE) == ADR_SECTIONS, page.name


def test_the_index_lists_every_decision_and_every_guide() -> None:
    index = text_of(ROOT / "docs" / "README.md")
    folders = ("adr", "how-to", "explanation", "tutorials")
    expected = {
        f"{page.parent.name}/{page.name}" for page in pages() if page.parent.name in folders
    }
    assert {name for name in expected if f"({name})" not in index} == set()


def dependency_names() -> set[str]:
    """The packages that pyproject.toml asks for, by name alone."""
    document = tomllib.loads(text_of(ROOT / "pyproject.toml"))
    project = document["project"]
    wanted = [
        *project["dependencies"],
        *(one for extra in project["optional-dependencies"].values() for one in extra),
        *document["dependency-groups"]["dev"],
    ]
    return {re.split(r"[^\w-]", one, maxsplit=1)[0].lower() for one in wanted} - {"penstock"}


def test_every_dependency_is_justified_and_no_other() -> None:
    text = text_of(ROOT / "docs" / "dependencies.md")
    rows = re.findall(r"^\| `([a-z0-9-]+)` \|", text, re.MULTILINE)
    assert set(rows) == dependency_names()


def forbidden(text: str) -> list[str]:
    return MACHINE_PATHS.findall(text) + REGISTRY_HOSTS.findall(text)


def test_no_file_names_a_machine_path_or_a_registry() -> None:
    found = {}
    for path in tracked():
        try:
            text = path.read_text("utf-8")
        except UnicodeDecodeError:
            continue
        if hits := forbidden(text):
            found[name_of(path)] = hits
    assert found == {}


def test_a_machine_path_and_a_registry_are_noticed() -> None:
    assert forbidden("see /" + "home/ada/notes")
    assert forbidden("get it from py" + "pi.org")
    assert not forbidden("see docs/how-to and /run/secrets/name")
