"""Shows two payments whose answers were lost, each paid exactly once. Needs nothing installed.

    python examples/two_rails/run.py

Starts a Postgres of its own and two simulated rails over HTTP, in this process.
"""

import asyncio
import sys
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import asyncpg

from penstock import Instruction, Penstock
from penstock.kernel.addresses import AddressPolicy
from penstock.kernel.outgoing import Outgoing
from penstock.kernel.schema import migrate
from penstock.kernel.secrets import Secret
from penstock.payments.simulator import Simulator
from penstock.payments.simulator_server import serving
from penstock.postgres import throwaway_cluster

sys.path.insert(0, str(Path(__file__).parent))
QUICK = "update penstock.queue_config set backoff_base_s = 0.02 where queue = 'payments'"
DUE = "update penstock.schedule set next_run_at = now() where job = 'payments_resolve'"
STATE = "select state from supervisor_outbox_status where outbox_id = $1"


async def pay(ps: Penstock, rail: str, destination: dict[str, str]) -> UUID:
    """Enqueue one payment, in a transaction where your own changes would stand too."""
    async with ps.transaction() as tx:
        instruction = Instruction(
            instruction_id=f"payout-{rail}",
            participant_id="merchant-7",
            rail=rail,
            amount=Decimal("125.00"),
            currency="EUR",
            destination=destination,
        )
        return await ps.payments.enqueue(tx, instruction, idempotency_key="first")


async def until(conn: "asyncpg.Connection[asyncpg.Record]", payment: UUID, state: str) -> None:
    """Wait until a payment has a state; fail after a while."""
    for _ in range(1000):
        if await conn.fetchval(STATE, payment) == state:
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"{payment} is not {state}")


async def show(ps: Penstock, conn: "asyncpg.Connection[asyncpg.Record]") -> None:
    """Pay over both while both lose their first answer, after having paid."""
    transfers, bank = Simulator(script=["lost_after"]), Simulator(script=["lost_after"])
    bank.keyed = False
    outgoing = Outgoing(AddressPolicy.allowing(("127.0.0.1/32",)))
    async with serving(transfers) as one, serving(bank) as other:
        import payouts

        payouts.declare(ps, outgoing, transfers=one, bank=other, key=Secret("Bearer example"))
        work = asyncio.create_task(ps.work(only=["payments"]))
        first = await pay(ps, "transfers", {"account": "acct_1"})
        await until(conn, first, "DISPATCHED")
        print(f"transfers  called {len(transfers.calls)} times, paid {len(transfers.effects)}")
        second = await pay(ps, "bank", {"iban": "DE02120300000000202051"})
        await until(conn, second, "HELD")
        print(f"bank       called {len(bank.calls)} time, held: it may have been paid")
        await conn.execute(DUE)
        await until(conn, second, "DISPATCHED")
        print(f"bank       asked, and it had: called {len(bank.calls)}, paid {len(bank.effects)}")
        ps.stop()
        await work
        await outgoing.close()


async def main() -> None:
    """Everything, on a database that is thrown away."""
    with throwaway_cluster() as cluster:
        await migrate(cluster.url(), only="payments")
        conn = await asyncpg.connect(cluster.url())
        await conn.execute(QUICK)
        async with Penstock(cluster.url()) as ps:
            await show(ps, conn)
        await conn.close()


if __name__ == "__main__":
    asyncio.run(main())
