"""Errors of the inbox (class PN6xx)."""

from penstock.kernel.errors import PenstockError


class DeliveryRefused(PenstockError):
    """A delivery is not believed. Which of the reasons it was, callers are not told."""

    code = "PN601"


class SourceOverLimit(PenstockError):
    """A source sends faster than it may, or as many of its events wait as may."""

    code = "PN602"
