"""What `penstock doctor` asks of payments: which of them wait for a rail that nobody has."""

from penstock.kernel.checks import Check, Examination, Finding
from penstock.kernel.database import call
from penstock.payments.model import QUEUE

_WITHOUT_RAIL = """
select p.rail_type, count(*) as waiting,
       extract(epoch from penstock.clock() - min(p.created_at))::float8 as oldest_s
from public.payment_outbox_pending p
where p.next_attempt_at <= penstock.clock()
  and not exists (select from public.payment_rails r where r.rail_type = p.rail_type)
group by p.rail_type order by p.rail_type
"""


async def _rails(exam: Examination) -> list[Finding]:
    """A worker enters its rails when it starts: a rail without a row was in none so far."""
    if not _installed(exam):
        return []
    return [
        Finding(
            "rails",
            "error",
            f"no worker has declared rail {row['rail_type']}: {row['waiting']:,} payments wait for "
            f"it, the oldest for {row['oldest_s']:,.0f} s",
            f'ps.payments.rail("{row["rail_type"]}", ...) in the application, then restart it',
        )
        for row in await call(exam.conn, _WITHOUT_RAIL)
    ]


async def unclaimed(exam: Examination) -> dict[str, int]:
    """How many payments are ready that no worker can claim."""
    if not _installed(exam):
        return {}
    return {QUEUE: sum(row["waiting"] for row in await call(exam.conn, _WITHOUT_RAIL))}


def _installed(exam: Examination) -> bool:
    return any(product.name == "payments" for product in exam.products)


CHECKS = (Check("rails", _rails, needs_schema=True),)
