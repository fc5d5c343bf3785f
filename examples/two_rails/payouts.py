"""Payouts over two rails: transfers with keys, and a bank without."""

from datetime import timedelta

from penstock import Instruction, Penstock
from penstock.kernel.outgoing import Outgoing
from penstock.kernel.secrets import Secret
from penstock.payments.http_rail import AskableHttpRail, HttpRail, HttpRailConfig


def transfer_body(instruction: Instruction) -> dict[str, object]:
    """A transfer as the provider wants it; the amount is in minor units."""
    return {
        "amount": instruction.minor_units,
        "currency": instruction.currency,
        "destination": instruction.destination,
        "instruction_id": instruction.instruction_id,
    }


def declare(ps: Penstock, outgoing: Outgoing, *, transfers: str, bank: str, key: Secret) -> None:
    """Register both rails. The provider keeps keys for 24 hours; the bank keeps none."""
    ps.payments.rail(
        "transfers",
        HttpRail(
            HttpRailConfig(
                url=f"{transfers}/transfers",
                codes={
                    "rate_limit": "RETRY",
                    "BUSY": "RETRY",
                    "account_closed": "REJECT",
                    "REFUSED": "REJECT",
                },
                code_at=("error", "code"),
                authorization=key,
                body=transfer_body,
                destination_keys=("account",),
            ),
            outgoing,
        ),
        key_window=timedelta(hours=23),
        timeout_s=10,
    )
    ps.payments.rail(
        "bank",
        AskableHttpRail(
            HttpRailConfig(
                url=f"{bank}/transfers",
                codes={"REFUSED": "REJECT"},
                code_at=("error", "code"),
                destination_keys=("iban",),
            ),
            outgoing,
            status_url=f"{bank}/transfers/{{key}}",
        ),
        key_window=None,
        timeout_s=10,
    )
