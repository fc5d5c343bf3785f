"""Errors of HTTP and identity, shared by what calls out, what is called, and SQL (class PN7xx)."""

from penstock.kernel.errors import PenstockError


class NotAuthenticated(PenstockError):
    """The token is missing, expired, forged, or signed by an unexpected key."""

    code = "PN701"


class NotAllowed(PenstockError):
    """The token is valid but does not permit this."""

    code = "PN702"


class OverCapacity(PenstockError):
    """More requests are waiting than this process will hold."""

    code = "PN703"


class AddressRefused(PenstockError):
    """The URL is not https, or leads to an address that is not public."""

    code = "PN704"


class DownstreamFailed(PenstockError):
    """The called system did not answer; `sent` says whether it may have received the request."""

    code = "PN705"

    def __init__(self, what: str = "", *, sent: bool = True, kind: str = "NETWORK") -> None:
        super().__init__(what)
        self.sent = sent
        self.kind = kind


class RequestRefused(PenstockError):
    """The request is malformed or too large; `status` is what the caller is told."""

    code = "PN706"

    def __init__(self, what: str = "", *, status: int = 400, todo: str = "") -> None:
        super().__init__(what, todo=todo)
        self.status = status
