"""Errors of the outbox."""

from penstock.kernel.errors import PenstockError


class PayloadRefused(PenstockError):
    """The payload is too large, is not JSON, or holds what Postgres cannot store."""

    code = "PN401"
