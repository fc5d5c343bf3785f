"""What is to be paid: amount, currency and destination, checked before anything is sent.

Enqueue checks the same rules in SQL. They are checked again before the rail is called, because rows
can be written by hand, and money that has moved does not come back.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any, TypeAlias

import msgspec

from penstock.payments.errors import PaymentRefused

Destination: TypeAlias = "str | Mapping[str, str]"

AMOUNT_DIGITS_MAX = 18
_PLAIN = re.compile(r"[0-9]{1,15}(?:\.[0-9]{1,4})?")
# Active ISO 4217 codes; the table in the database says the same.
MINOR_UNITS = {
    code: decimals
    for decimals, codes in (
        (
            2,
            "AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BMD BND BOB BOV BRL BSD BTN BWP BYN "
            "BZD CAD CDF CHE CHF CHW CNY COP COU CRC CUP CVE CZK DKK DOP DZD EGP ERN ETB EUR FJD "
            "FKP GBP GEL GHS GIP GMD GTQ GYD HKD HNL HTG HUF IDR ILS INR IRR JMD KES KGS KHR KPW "
            "KYD KZT LAK LBP LKR LRD LSL MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MXV MYR "
            "MZN NAD NGN NIO NOK NPR NZD PAB PEN PGK PHP PKR PLN QAR RON RSD RUB SAR SBD SCR SDG "
            "SEK SGD SHP SLE SOS SRD SSP STN SVC SYP SZL THB TJS TMT TOP TRY TTD TWD TZS UAH USD "
            "USN UYU UZS VED VES WST XCD XCG YER ZAR ZMW ZWG",
        ),
        (0, "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF"),
        (3, "BHD IQD JOD KWD LYD OMR TND"),
        (4, "CLF UYW"),
    )
    for code in codes.split()
}
_OWN_KEYS = frozenset({"amount", "currency", "destination"})


@dataclass(frozen=True, slots=True)
class Instruction:
    """One payment: `amount` is a Decimal in major units or an int in minor ones, never a float.

    `instruction_id` is yours; one participant's payments are dispatched in the order in which they
    were enqueued. `details` is carried to the rail as it is.
    """

    instruction_id: str
    participant_id: str
    rail: str
    amount: Decimal | int
    currency: str
    destination: Destination
    details: Mapping[str, object] = field(default_factory=dict)

    @property
    def minor_units(self) -> int:
        """The amount in the smallest unit of its currency."""
        if isinstance(self.amount, int):
            return self.amount
        return int(self.amount.scaleb(MINOR_UNITS[self.currency]))

    def problem(self) -> str | None:
        """What keeps it from being dispatched; None if nothing does. Quotes no value."""
        decimals = MINOR_UNITS.get(self.currency)
        if decimals is None:
            return "the currency is not an active ISO 4217 code in capitals"
        found = _amount_problem(self.amount, decimals)
        if found is not None:
            return found
        if _is_empty(self.destination):
            return "the destination is empty"
        if _OWN_KEYS & self.details.keys():
            return "details repeat the amount, the currency or the destination"
        return None

    def payload(self) -> str:
        """The JSON text that is stored; raises PaymentRefused."""
        found = self.problem()
        if found is not None:
            raise PaymentRefused(f"payment {self.instruction_id} is refused: {found}")
        amount: object = self.amount
        if isinstance(self.amount, Decimal):
            amount = format(self.amount, "f")
        document: dict[str, object] = {
            **self.details,
            "amount": amount,
            "currency": self.currency,
            "destination": self.destination,
        }
        try:
            return msgspec.json.encode(document).decode()
        except (TypeError, ValueError, msgspec.MsgspecError) as error:
            raise PaymentRefused(
                f"payment {self.instruction_id} cannot be written as JSON: {type(error).__name__}"
            ) from error


def _is_empty(destination: object) -> bool:
    """Whether nothing is said about where the money goes."""
    said = destination.values() if isinstance(destination, Mapping) else (destination,)
    if not isinstance(destination, str | Mapping):
        return True
    return not any(value is not None and str(value).strip() for value in said)


def _amount_problem(amount: object, decimals: int) -> str | None:
    if isinstance(amount, bool) or not isinstance(amount, Decimal | int):
        return "the amount is neither a Decimal nor an int of minor units"
    if isinstance(amount, int):
        if amount >= 10**AMOUNT_DIGITS_MAX:
            return f"the amount has more than {AMOUNT_DIGITS_MAX} digits"
        return None if amount > 0 else "the amount is not above zero"
    if not amount.is_finite() or amount <= 0:
        return "the amount is not above zero"
    exponent = amount.as_tuple().exponent
    if isinstance(exponent, int) and -exponent > decimals:
        return f"the amount has more than {decimals} decimals"
    if not _PLAIN.fullmatch(format(amount, "f")):
        return "the amount is not a plain decimal of at most 15 digits"
    return None


def stored_instruction(
    instruction_id: str, participant_id: str, *, rail: str, payload: str
) -> Instruction:
    """The instruction that a stored payload describes; raises PaymentRefused."""
    try:
        document: Any = msgspec.json.decode(payload)
        amount = document.pop("amount")
        found = Instruction(
            instruction_id=instruction_id,
            participant_id=participant_id,
            rail=rail,
            amount=_exact(amount),
            currency=document.pop("currency"),
            destination=document.pop("destination"),
            details=document,
        )
        problem = found.problem()
    except (msgspec.MsgspecError, KeyError, TypeError, AttributeError, ValueError) as error:
        raise PaymentRefused(f"the payload is no payment: {type(error).__name__}") from error
    if problem is not None:
        raise PaymentRefused(problem)
    return found


def _exact(amount: object) -> Decimal | int:
    """An integer of minor units or a plain decimal text; a float is refused, whatever its value."""
    if isinstance(amount, str) and _PLAIN.fullmatch(amount):
        try:
            return Decimal(amount)
        except InvalidOperation as error:
            raise ValueError("no decimal") from error
    if isinstance(amount, int) and not isinstance(amount, bool):
        return amount
    raise ValueError("the amount is neither a decimal text nor an integer")
