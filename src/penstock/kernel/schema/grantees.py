"""Finds the roles that a statement names, and leaves out those that do not exist.

Without our roles (`--no-roles`), or without a host's roles, the same SQL files still apply: what
would be granted to an absent role is simply not granted.
"""

from collections.abc import Container
from dataclasses import dataclass

from penstock.kernel.sqltext import Statement, Token

_ALWAYS = frozenset({"public", "current_user", "current_role", "session_user"})
_ENDS = frozenset({"with", "using", "granted", "cascade", "restrict", "grant", "revoke"})


@dataclass(frozen=True, slots=True)
class _Span:
    """The grantees of a statement and where they stand among its tokens."""

    start: int
    end: int
    roles: tuple[str, ...]


def for_existing_roles(statement: Statement, existing: Container[str]) -> str | None:
    """The statement with absent grantees left out; None when nobody is left to grant to."""
    if not _names_roles(statement):
        return statement.text
    owner = _named_owner(statement)
    if owner is not None and owner not in existing:
        return None
    span = _grantees(statement)
    if span is None:
        return statement.text
    present = [role for role in span.roles if role in _ALWAYS or role in existing]
    if not present:
        return None
    if len(present) == len(span.roles):
        return statement.text
    tokens = statement.tokens
    listed = ", ".join(_quoted(role) for role in present)
    return _joined(tokens[: span.start]) + f" {listed} " + _joined(tokens[span.end :])


def roles_of(statement: Statement) -> tuple[str, ...]:
    """The roles that a statement grants to or takes from, beyond the built-in names."""
    if not _names_roles(statement):
        return ()
    span = _grantees(statement)
    return tuple(role for role in span.roles if role not in _ALWAYS) if span else ()


def _names_roles(statement: Statement) -> bool:
    heads = ("grant",), ("revoke",), ("create", "policy"), ("alter",)
    return any(statement.starts(*head) for head in heads)


def _named_owner(statement: Statement) -> str | None:
    """The role in `owner to X` or `alter default privileges for role X`."""
    for before in (("owner", "to"), ("privileges", "for", "role")):
        for position in range(len(statement.words) - len(before)):
            if statement.words[position : position + len(before)] == before:
                return statement.words[position + len(before)]
    return None


def _grantees(statement: Statement) -> _Span | None:
    start = _list_start(statement)
    if start is None:
        return None
    roles: list[str] = []
    end = start
    depth = 0
    for position in range(start, len(statement.tokens)):
        token = statement.tokens[position]
        depth += {"(": 1, ")": -1}.get(token.text, 0)
        if depth or token.folded in _ENDS:
            break
        if token.significant and token.text != "," and token.folded != "group":
            roles.append(token.folded)
        end = position + 1
    return _Span(start, end, tuple(roles)) if roles else None


def _list_start(statement: Statement) -> int | None:
    """The token after the last `to` or `from` outside parentheses."""
    found: int | None = None
    depth = 0
    for position, token in enumerate(statement.tokens):
        depth += {"(": 1, ")": -1}.get(token.text, 0)
        if token.kind == "word" and token.folded == "using":
            break
        if depth == 0 and token.kind == "word" and token.folded in {"to", "from"}:
            found = position + 1
    if statement.starts("alter") and not statement.starts("alter", "default"):
        return None
    return found


def _joined(tokens: tuple[Token, ...]) -> str:
    return "".join(token.text for token in tokens).strip()


def _quoted(role: str) -> str:
    return role if role in _ALWAYS else '"' + role.replace('"', '""') + '"'
