"""Errors of the outbox."""

from penstock.kernel.errors import PenstockError


class PayloadRefused(PenstockError):
    """The payload is too large, is not JSON, or holds what Postgres cannot store."""

    code = "PN401"


class KeyReused(PenstockError):
    """The dedupe key belongs to an event with another payload."""

    code = "PN402"
