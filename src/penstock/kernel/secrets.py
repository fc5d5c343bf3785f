"""Values that must not be seen: held so that printing, logging or dumping them shows a mask.

Also the one place that compares secrets and that hides them in texts such as database URLs.
"""

import hmac
import re
from collections.abc import Iterable
from hashlib import sha256
from urllib.parse import unquote, urlsplit

MASK = "********"

# A password may hold a raw slash; only of database addresses do we know that no path holds an "@".
_DSN_PASSWORD = re.compile(r"(?P<head>postgres(?:ql)?://[^\s/:@]*:)\S+(?=@)", re.IGNORECASE)
_URL_PASSWORD = re.compile(r"(?P<head>[a-z][a-z0-9+.-]*://[^\s/:@]*:)[^\s/]+(?=@)", re.IGNORECASE)
_QUERY_PASSWORD = re.compile(
    r"(?P<head>[?&;\s](?:password|sslpassword|apikey|token|secret)\s*=\s*)(?:'[^']*'|[^&;\s]+)",
    re.IGNORECASE,
)
_LEADING_PASSWORD = re.compile(
    r"^(?P<head>(?:password|sslpassword)\s*=\s*)(?:'[^']*'|\S+)", re.IGNORECASE
)
_BEARER = re.compile(r"(?P<head>\b(?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{8,}", re.IGNORECASE)
_JWT = re.compile(r"\beyJ[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]*")
_PREFIXED = re.compile(r"\b(?:whsec|sk_live|sk_test|rk_live|sb_secret)_[A-Za-z0-9+/=_-]{4,}")


class Secret:
    """Holds one secret text. Only `reveal()` gives it away."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself; call it where it is used, never where it is kept or printed."""
        return self._text

    def masked(self) -> str:
        """What may be shown instead of the text."""
        return MASK

    def matches(self, candidate: str | bytes) -> bool:
        """Whether a caller's candidate is this secret, in constant time."""
        return same_secret(self._text, candidate)

    def __str__(self) -> str:
        return self.masked()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.masked()!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and same_secret(self._text, other._text)

    def __hash__(self) -> int:
        return hash((Secret, self._text))

    def __bool__(self) -> bool:
        return bool(self._text)

    def __reduce__(self) -> str:
        raise TypeError("a secret is not pickled; pass its reference instead")


class Dsn(Secret):
    """A URL with a password inside: everything but the password may be shown."""

    __slots__ = ()

    @property
    def password(self) -> str | None:
        """The password alone, if the URL holds one where URLs do."""
        try:
            found = urlsplit(self._text).password
        except ValueError:
            return None
        return None if found is None else unquote(found)

    def masked(self) -> str:
        """The URL with its password hidden."""
        return mask_text(self._text)


def same_secret(expected: str | bytes, candidate: str | bytes) -> bool:
    """Compare two secrets in time that tells neither their length nor where they differ."""
    return hmac.compare_digest(_digest(expected), _digest(candidate))


def matches_any(secrets: Iterable[Secret], candidate: str | bytes) -> bool:
    """Whether the candidate is one of several live secrets; all of them are compared."""
    answers = [secret.matches(candidate) for secret in secrets]
    return True in answers


def mask_text(text: str) -> str:
    """The text with whatever looks like a secret hidden: URL passwords, tokens, signing keys."""
    text = _DSN_PASSWORD.sub(rf"\g<head>{MASK}", text)
    text = _URL_PASSWORD.sub(rf"\g<head>{MASK}", text)
    text = _QUERY_PASSWORD.sub(rf"\g<head>{MASK}", text)
    text = _LEADING_PASSWORD.sub(rf"\g<head>{MASK}", text)
    text = _BEARER.sub(rf"\g<head>{MASK}", text)
    text = _JWT.sub(MASK, text)
    return _PREFIXED.sub(MASK, text)


def _digest(value: str | bytes) -> bytes:
    return sha256(
        value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
    ).digest()
