"""Secrets by reference: `env:NAME` and `file:/path` say where a secret is, never what it is."""

from collections.abc import Mapping
from errno import EFBIG, EINVAL
from pathlib import Path

KINDS = ("env", "file")
BYTES_MAX = 64 * 1024
_REASONS: dict[type[Exception], str] = {RuntimeError: "there is no such home directory"}


def is_reference(text: str) -> bool:
    """Whether a text says where a secret is."""
    return text.partition(":")[0] in KINDS


def follow(reference: str, env: Mapping[str, str]) -> str:
    """The secret that a reference leads to; raises ValueError without quoting any secret."""
    kind, _, where = reference.partition(":")
    if kind == "file":
        try:
            return _read(Path(where).expanduser())
        except (OSError, RuntimeError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or _REASONS.get(type(error), "it is not text")
            raise ValueError(f"refers to {where}, which cannot be read: {reason}") from error
    if kind == "env":
        if not env.get(where):
            raise ValueError(f"refers to the variable {where}, which is not set")
        return env[where]
    raise ValueError(f"is no reference; write one of {', '.join(f'{k}:…' for k in KINDS)}")


def _read(path: Path) -> str:
    """A file's text. Whoever may name a file may name a pipe or a device: those never end."""
    if path.exists() and not path.is_file():
        raise OSError(EINVAL, "it is no regular file")
    with path.open("rb") as file:
        found = file.read(BYTES_MAX + 1)
    if len(found) > BYTES_MAX:
        raise OSError(EFBIG, f"it has more than {BYTES_MAX} bytes")
    return found.decode("utf-8").strip()
