"""Secrets by reference: `env:NAME` and `file:/path` say where a secret is, never what it is."""

from collections.abc import Mapping
from pathlib import Path

KINDS = ("env", "file")


def is_reference(text: str) -> bool:
    """Whether a text says where a secret is."""
    return text.partition(":")[0] in KINDS


def follow(reference: str, env: Mapping[str, str]) -> str:
    """The secret that a reference leads to; raises ValueError without quoting any secret."""
    kind, _, where = reference.partition(":")
    if kind == "file":
        try:
            return Path(where).expanduser().read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not text"
            raise ValueError(f"refers to {where}, which cannot be read: {reason}") from error
    if kind == "env":
        if not env.get(where):
            raise ValueError(f"refers to the variable {where}, which is not set")
        return env[where]
    raise ValueError(f"is no reference; write one of {', '.join(f'{k}:…' for k in KINDS)}")
