"""Errors of payments. SQL raises them; validation and key conflicts under SQLSTATE 22023."""

from penstock.kernel.errors import PenstockError


class PaymentRefused(PenstockError):
    """Amount, currency, destination or an identifier cannot be dispatched."""

    code = "PN501"


class PaymentKeyReused(PenstockError):
    """The key was used for another payment."""

    code = "PN502"


class InstructionRepeated(PenstockError):
    """The policy allows one payment per instruction, and there is one."""

    code = "PN503"


class PaymentProtected(PenstockError):
    """A write would invent a payment or change one."""

    code = "PN504"


class PaymentStateMismatch(PenstockError):
    """The payment is not in the state that the action needs."""

    code = "PN505"


class ReconcileFirst(PenstockError):
    """Sending again may pay twice; somebody must find out first."""

    code = "PN506"


class SecondApprovalNeeded(PenstockError):
    """Another login must approve first."""

    code = "PN507"
