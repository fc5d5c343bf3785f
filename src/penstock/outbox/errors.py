"""Errors of the outbox."""

from penstock.kernel.errors import PenstockError


class PayloadRefused(PenstockError):
    """The payload is too large, is not JSON, or holds what Postgres cannot store."""

    code = "PN401"


class SchemaChanged(PenstockError):
    """A topic's model changed within a version in a way that old or new code cannot read."""

    code = "PN403"


class TopicReserved(PenstockError):
    """Only Penstock itself publishes to topics that begin with `penstock.`."""

    code = "PN404"


class RoutesBusy(PenstockError):
    """A route could not be removed: a transaction that does not end is using the routes."""

    code = "PN405"


class KeyReused(PenstockError):
    """The dedupe key belongs to an event with another payload."""

    code = "PN402"
