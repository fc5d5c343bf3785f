"""Reads SQL text just far enough: tokens, statements, and the names that a statement creates.

Aware of quotes, dollar quotes, nested comments and SQL-standard function bodies; it is no parser
and does not judge. Postgres remains the only one to say whether a statement is right.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

Kind = Literal["space", "comment", "quoted", "word", "symbol"]

_TOKEN = re.compile(
    r"""
      (?P<space>\s+)
    | (?P<comment>--[^\n]*)
    | (?P<block>/\*)
    | (?P<quoted>
          [eE]'(?:[^'\\]|\\.|'')*'
        | (?:[uU]&|[bBxXnN])?'(?:[^']|'')*'
        | (?:[uU]&)?"(?:[^"]|"")*"
      )
    | (?P<dollar>\$(?:[^\W\d]\w*)?\$)
    | (?P<word>[^\W\d][\w$]*|\d[\w.]*|\$\d+)
    | (?P<symbol>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_BLOCK_EDGE = re.compile(r"/\*|\*/")


@dataclass(frozen=True, slots=True)
class Token:
    """One piece of SQL text; `text` is verbatim."""

    kind: Kind
    text: str

    @property
    def significant(self) -> bool:
        """Whether the token means anything to the server."""
        return self.kind not in {"space", "comment"}

    @property
    def folded(self) -> str:
        """The text as the server compares it: words in lower case, quoted names without quotes."""
        if self.kind == "word":
            return self.text.lower()
        if self.text.startswith('"'):
            return self.text[1:-1].replace('""', '"')
        return self.text


@dataclass(frozen=True, slots=True)
class Creation:
    """What a statement creates: kind (table, view, type, function, …) and qualified name."""

    kind: str
    schema: str
    name: str
    optional: bool = False

    @property
    def qualified(self) -> str:
        """The name with its schema."""
        return f"{self.schema}.{self.name}" if self.schema else self.name


@dataclass(frozen=True)
class Statement:
    """One statement without its semicolon; equality and digests ignore comments and spacing."""

    tokens: tuple[Token, ...]

    @property
    def text(self) -> str:
        """The statement verbatim, without the comments in front of it."""
        first = next(i for i, token in enumerate(self.tokens) if token.significant)
        return "".join(token.text for token in self.tokens[first:]).rstrip()

    @cached_property
    def significant(self) -> tuple[Token, ...]:
        """The tokens that mean something."""
        return tuple(token for token in self.tokens if token.significant)

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The significant tokens, folded."""
        return tuple(token.folded for token in self.significant)

    @property
    def canonical(self) -> str:
        """The statement as one line without comments: the form that digests are taken of."""
        return " ".join(token.text for token in self.significant)

    def starts(self, *words: str) -> bool:
        """Whether the statement begins with these words."""
        return self.words[: len(words)] == words

    @cached_property
    def creates(self) -> Creation | None:
        """The object that a `create` statement makes, or None for other statements."""
        return _creation(self.words) if self.starts("create") else None


def tokenize(text: str) -> Iterator[Token]:
    """Cut SQL text into tokens; joined together they are the text again."""
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        assert match is not None, "the last alternative matches any character"
        group = match.lastgroup
        end = match.end()
        if group == "block":
            end = _block_end(text, end)
            group = "comment"
        elif group == "dollar":
            closing = text.find(match.group(), end)
            end = len(text) if closing < 0 else closing + len(match.group())
            group = "quoted"
        yield Token(_kind(group), text[position:end])
        position = end


def _kind(group: str | None) -> Kind:
    for kind in ("space", "comment", "quoted", "word", "symbol"):
        if kind == group:
            return kind
    raise AssertionError(group)


def _block_end(text: str, position: int) -> int:
    depth = 1
    while depth:
        edge = _BLOCK_EDGE.search(text, position)
        if edge is None:
            return len(text)
        depth += 1 if edge.group() == "/*" else -1
        position = edge.end()
    return position


class _Body:
    """Follows `begin atomic … end`, whose semicolons do not end the statement."""

    def __init__(self) -> None:
        self.depth = 0
        self._before = ""

    def pass_word(self, word: str) -> None:
        if self.depth == 0:
            self.depth = int(word == "atomic" and self._before == "begin")
        elif word in {"case", "begin"}:
            self.depth += 1
        elif word == "end":
            self.depth -= 1
        self._before = word


def split(text: str) -> tuple[Statement, ...]:
    """Cut SQL text into statements at the semicolons that end one; empty ones are dropped."""
    statements: list[Statement] = []
    pending: list[Token] = []
    body = _Body()
    for token in tokenize(text):
        if token.kind == "word":
            body.pass_word(token.folded)
        if token.text == ";" and token.kind == "symbol" and body.depth == 0:
            _close(statements, pending)
            pending = []
            body = _Body()
        else:
            pending.append(token)
    _close(statements, pending)
    return tuple(statements)


def _close(statements: list[Statement], pending: list[Token]) -> None:
    if any(token.significant for token in pending):
        statements.append(Statement(tuple(pending)))


_MODIFIERS = frozenset(
    {"or", "replace", "temp", "temporary", "unlogged", "unique", "materialized", "constraint"}
    | {"recursive", "global", "local"}
)
_KINDS = frozenset(
    {"table", "view", "type", "domain", "sequence", "index", "function", "procedure"}
    | {"schema", "extension", "trigger", "policy"}
)


def _creation(words: tuple[str, ...]) -> Creation | None:
    position = 1
    while position < len(words) and words[position] in _MODIFIERS:
        position += 1
    if position >= len(words) or words[position] not in _KINDS:
        return None
    kind = words[position]
    position += 1
    if kind == "index" and words[position] == "concurrently":
        position += 1
    optional = words[position : position + 3] == ("if", "not", "exists")
    position += 3 if optional else 0
    schema, name = _qualified(words, position)
    return Creation(kind, schema, name, optional)


def _qualified(words: tuple[str, ...], position: int) -> tuple[str, str]:
    """The schema (or nothing) and the name at a position."""
    if words[position + 1 : position + 2] == (".",):
        return words[position], words[position + 2]
    return "", words[position]


_NOT_COLUMNS = frozenset({"constraint", "primary", "unique", "check", "foreign", "exclude", "like"})


def columns(statement: Statement) -> tuple[tuple[str, str], ...]:
    """The columns that a `create table` statement declares: name and type, as written."""
    return tuple(
        (piece[0].folded, _column_type(piece[1:]))
        for piece in _pieces(statement.significant)
        if piece and piece[0].folded not in _NOT_COLUMNS
    )


_TYPE_ENDS = frozenset(
    {"not", "null", "default", "primary", "unique", "check", "references", "generated"}
    | {"constraint", "collate", "storage", "compression"}
)


def _column_type(tokens: tuple[Token, ...]) -> str:
    parts: list[str] = []
    for token in tokens:
        if token.folded in _TYPE_ENDS:
            break
        parts.append(token.folded)
    text = " ".join(parts)
    return re.sub(r" ?([.(),\[\]]) ?", r"\1", text)


def _pieces(tokens: tuple[Token, ...]) -> Iterator[tuple[Token, ...]]:
    """The comma-separated pieces inside the first pair of parentheses."""
    depth = 0
    piece: list[Token] = []
    for token in tokens:
        depth += {"(": 1, ")": -1}.get(token.text, 0)
        if depth == 0 and token.text == ")":
            break
        if depth == 1 and token.text == ",":
            yield tuple(piece)
            piece = []
        elif depth > 1 or (depth == 1 and (token.text != "(" or piece)):
            piece.append(token)
    yield tuple(piece)
