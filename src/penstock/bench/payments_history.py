"""What claim, reaper and depth queries of payments cost with little and with much history."""

from collections.abc import Awaitable, Callable
from statistics import median
from time import monotonic
from typing import TypeAlias
from uuid import uuid4

import asyncpg

from penstock.bench.report import BenchReport
from penstock.payments import store
from penstock.payments.model import NewPayment

LITTLE = 1_000
PARTICIPANTS = 100
ROUNDS = 30
CHUNK = 500_000
PAYLOAD = '{"amount": 1050, "currency": "EUR", "destination": {"iban": "DE02120300000000202051"}}'
# Dispatches and their outcomes of long ago, two rows for each payment, in the order of their ids.
FILL = """
    insert into public.payment_outbox_attempts
        (attempt_id, outbox_id, instruction_id, participant_id, sequence_id, idempotency_key,
         rail_type, payload, attempt_no, state, claimed_at, created_at)
    select ('01800000-' || lpad(to_hex(n >> 16), 4, '0') || '-7' || lpad(to_hex((n >> 4) & 4095),
               3, '0') || '-8' || lpad(to_hex(n & 15), 3, '0') || '-000000000000')::uuid,
           ('01800000-' || lpad(to_hex((n / 2) >> 16), 4, '0') || '-7' || lpad(to_hex(((n / 2) >> 4)
               & 4095), 3, '0') || '-8' || lpad(to_hex((n / 2) & 15), 3, '0')
               || '-000000000000')::uuid,
           'h' || n / 2, 'p' || n / 2 % 1000, n / 2, 'k', 'bench', $3::jsonb, n % 2 + 1,
           (case n % 2 when 0 then 'DISPATCHING' else 'DISPATCHED' end)::outbox_attempt_state,
           now(), now()
    from generate_series($1::bigint, $2::bigint - 1) as n
"""

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


async def measure_history(
    conn: Connection, count: int, *, report: BenchReport, progress: Callable[[str], None]
) -> float:
    """Fill an empty database with attempts; returns how many times a claim's cost has grown."""
    progress(f"claims with {LITTLE:,} and with {count:,} attempts in history")
    await store.enqueue_many(
        conn,
        [
            NewPayment(f"i{n}", f"q{n % PARTICIPANTS:03}", "k", "bench", PAYLOAD)
            for n in range(PARTICIPANTS * 5)
        ],
    )
    await _fill(conn, 0, LITTLE)
    before = await _costs(conn, LITTLE, report)
    await _fill(conn, LITTLE, count)
    after = await _costs(conn, count, report)
    return report.figure("claim_growth_with_history", after / before)


async def _fill(conn: Connection, start: int, end: int) -> None:
    for at in range(start, end, CHUNK):
        await conn.execute(FILL, at, min(at + CHUNK, end), PAYLOAD, timeout=600)
    await conn.execute("vacuum (analyze)", timeout=600)
    await conn.execute("checkpoint", timeout=600)


async def _costs(conn: Connection, rows: int, report: BenchReport) -> float:
    """Medians in milliseconds. Claims are undone: a disk that is still busy does not count."""
    name = f"at_{rows}_attempts"
    times: list[float] = []
    for _ in range(ROUNDS):
        transaction = conn.transaction()
        await transaction.start()
        times.append(await _timed_ms(store.claim(conn, limit=PARTICIPANTS, owner=uuid4())))
        await transaction.rollback()
    claim_ms = report.figure(f"claim_ms_{name}", median(times))
    reaps = [await _timed_ms(store.reap(conn)) for _ in range(ROUNDS)]
    report.figure(f"reap_ms_{name}", median(reaps))
    depth = "select * from penstock_payments.stats"
    depths = [await _timed_ms(conn.fetch(depth)) for _ in range(ROUNDS)]
    report.figure(f"depth_ms_{name}", median(depths))
    return claim_ms


async def _timed_ms(work: Awaitable[object]) -> float:
    started = monotonic()
    await work
    return (monotonic() - started) * 1000
