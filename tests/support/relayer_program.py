"""A relayer process for fault tests: the real application with two rails over HTTP.

`TEST_KEYED` and `TEST_PLAIN` are the addresses of two simulators in the test's own process; only
the first recognises keys. Every observation is a line in a file.
"""

import asyncio
import json
import os
import signal
from dataclasses import fields
from datetime import timedelta
from pathlib import Path

from penstock.application import Penstock
from penstock.kernel.addresses import AddressPolicy
from penstock.kernel.events import Observation
from penstock.kernel.failpoints import arm_from_environment
from penstock.kernel.outgoing import CallLimits, Outgoing
from penstock.payments.http_rail import HttpRail, HttpRailConfig

TIMEOUT_S = 1.0


def build(outgoing: Outgoing) -> Penstock:
    """The application: rails `keyed` and `plain`."""
    ps = Penstock.from_env()
    for name, window in (("keyed", timedelta(hours=24)), ("plain", None)):
        config = HttpRailConfig(
            url=os.environ[f"TEST_{name.upper()}"] + "/transfers",
            codes={"BUSY": "RETRY", "REFUSED": "REJECT"},
            code_at=("error", "code"),
            destination_keys=("iban",),
        )
        ps.payments.rail(
            name, HttpRail(config, outgoing), key_window=window, timeout_s=TIMEOUT_S, concurrency=16
        )
    return ps


async def main() -> None:
    """Work until SIGTERM; the report is the last line on standard output."""
    policy = AddressPolicy.allowing(("127.0.0.1/32",))
    outgoing = Outgoing(policy, limits=CallLimits(timeout_s=TIMEOUT_S))
    ps = build(outgoing)
    log = Path(os.environ["TEST_OBSERVATIONS"])

    def write(one: Observation) -> None:
        values = {field.name: str(getattr(one, field.name)) for field in fields(one)}
        with log.open("a") as file:
            file.write(json.dumps({"name": one.name, **values}) + "\n")

    ps.subscribe(write)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ps.stop)
    async with ps:
        report = await ps.work(only=["payments"])
    await outgoing.close()
    print(json.dumps({field.name: getattr(report, field.name) for field in fields(report)}))


if __name__ == "__main__":
    arm_from_environment()
    asyncio.run(main())
