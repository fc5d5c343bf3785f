"""Which secrets a row in the database may have this process sign with or send.

Whoever may configure a destination or a route chooses both the secret and who receives what is made
of it. So such a row reaches only what the process was told to give to receivers, and never what the
process lives by itself: its database, its keys for users and operators.
"""

import os
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import PurePath

from penstock.kernel.references import follow
from penstock.kernel.secrets import Dsn, Secret
from penstock.kernel.settings import TABLE, Settings

SETTING = "destination_secrets"
_FOR_RECEIVERS = "http_signing_secret"


def outgoing_secret(
    reference: str, settings: Settings, env: Mapping[str, str] | None = None
) -> Secret:
    """The secret that a row names; raises ValueError without quoting any secret."""
    if not is_for_receivers(reference, settings.destination_secrets):
        raise ValueError(
            f"refers to {reference}, which is not for receivers; if it is meant, add it to "
            f"the setting {SETTING}"
        )
    secret = Secret(follow(reference, os.environ if env is None else env))
    if any(secret == own for own in _own(settings)):
        raise ValueError(f"refers to {reference}, which is a key of this process itself")
    return secret


def is_for_receivers(reference: str, patterns: tuple[str, ...]) -> bool:
    """Whether a process with these patterns would follow a reference; not what it leads to."""
    if reference in patterns:
        return True
    kind, _, where = reference.partition(":")
    if kind == "file" and ".." in PurePath(where).parts:
        return False
    if kind == "env" and any(where in row.env_names for row in TABLE.values()):
        return False
    return any(_matches(reference, pattern) for pattern in patterns)


def _matches(reference: str, pattern: str) -> bool:
    """`*` stands for anything, but within a path for one part of it: not for folders below."""
    if pattern == "*":
        return True
    return reference.count("/") == pattern.count("/") and fnmatchcase(reference, pattern)


def _own(settings: Settings) -> Iterator[Secret]:
    for row in TABLE.values():
        if row.spec.secret and row.name != _FOR_RECEIVERS:
            value = getattr(settings, row.name)
            for own in value if isinstance(value, tuple) else (value,) if value else ():
                yield own
                if isinstance(own, Dsn) and own.password:
                    yield Secret(own.password)
