"""Intake's own errors; SQL raises the same codes."""

from penstock.kernel.errors import PenstockError


class SaleSoldOut(PenstockError):
    """No slot of the pool is free."""

    code = "PN301"


class SaleBusy(PenstockError):
    """Free slots exist, but all are being claimed at this moment."""

    code = "PN302"


class SaleLimitReached(PenstockError):
    """The user holds as many slots of the pool as allowed."""

    code = "PN303"


class SaleNotOpen(PenstockError):
    """The pool is inactive, not yet open, or closed."""

    code = "PN304"


class OwnershipConflict(PenstockError):
    """The ledger holds the resource for another reservation."""

    code = "PN305"


class ReservationCancelled(PenstockError):
    """The reservation was cancelled before its commit arrived."""

    code = "PN306"


class FunctionNotAllowed(PenstockError):
    """The pool names a commit function that is not on the allow-list."""

    code = "PN307"
