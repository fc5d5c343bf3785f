"""What an answer over HTTP means for the item that was sent. Pure rules, no network."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

from penstock.kernel.http_errors import DownstreamFailed
from penstock.kernel.verdict import DONE, Reject, Retry, Unknown, Verdict

RETRIED_STATUSES = frozenset({408, 425, 429})
CONFLICT = 409
RETRY_AFTER_MAX = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer: its status, its headers by lower-case name, and the body up to a cap."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    truncated: bool = False

    @property
    def code(self) -> str:
        """The status as an error code, such as HTTP_404."""
        return f"HTTP_{self.status}"


def verdict_of(
    reply: Reply,
    *,
    duplicate_is_done: bool = True,
    retry_after_max: timedelta = RETRY_AFTER_MAX,
    now: datetime | None = None,
) -> Verdict:
    """2xx is done, 4xx is a refusal, all else comes round again.

    409 answers "this key is known already", which for a constant key means done; a receiver that
    means something else by it needs `duplicate_is_done=False`. A redirect is never followed: it is
    retried, because it is as often a maintenance page as a move.
    """
    status = reply.status
    if 200 <= status < 300 or (status == CONFLICT and duplicate_is_done):
        return DONE
    if 400 <= status < 500 and status not in RETRIED_STATUSES:
        return Reject(reply.code)
    after = retry_after(reply, now=now)
    return Retry(None if after is None else min(after, retry_after_max), code=reply.code)


def verdict_of_failure(error: DownstreamFailed, *, keyed: bool) -> Verdict:
    """What no answer means: retried if it was not sent, or if the receiver honours our key."""
    if keyed or not error.sent:
        return Retry(code=error.kind, reason=error.what)
    return Unknown(error.kind)


def retry_after(reply: Reply, *, now: datetime | None = None) -> timedelta | None:
    """What `Retry-After` asks for: seconds or a date; None when absent or not understood."""
    text = reply.headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        return timedelta(seconds=min(int(text[:9]), 10**8))
    if not text or len(text) > 64:
        return None
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(moment - (now or datetime.now(UTC)), timedelta(0))
