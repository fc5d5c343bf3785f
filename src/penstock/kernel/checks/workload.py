"""Checks of the work itself: what is stuck, dead, paused or overdue."""

from penstock.kernel import operations
from penstock.kernel.checks.examination import Check, Examination, Finding
from penstock.kernel.database import call

STUCK_AGE_S = 60.0
LIVE_S = 60.0

# Jobs of a product are run by workers that work its queue. Where none does and nothing waits, the
# product is not in use, and nobody is late.
_OVERDUE = """
select s.job, s.every_s, s.last_error,
       extract(epoch from penstock.clock() - s.next_run_at)::float8 as late_s
from penstock.schedule s
where s.enabled
  and (s.last_error is not null
       or s.next_run_at < penstock.clock() - greatest(interval '1 minute',
                                                      make_interval(secs => 2 * s.every_s))
          and (s.product is null
               or exists (select from penstock.queue q
                          join penstock.worker w on q.queue = any (w.queues)
                          where q.product = s.product)
               or exists (select from penstock.queue q
                          join penstock.queue_stats t on t.queue = q.queue
                          where q.product = s.product and t.ready + t.scheduled + t.leased > 0)))
order by s.job
"""
_LATE = """
select queue, count(*) as number from penstock.late_results
where recorded_at > penstock.clock() - interval '1 hour' group by queue order by queue
"""


async def _draining(exam: Examination) -> list[Finding]:
    """A queue with old ready items: nobody works it, or those who do cannot keep up."""
    stats = await operations.queue_stats(exam.conn)
    seen = await operations.workers(exam.conn)
    paused = {pause.target for pause in await operations.pauses(exam.conn)}
    served = {queue for worker in seen if worker.silent_s < LIVE_S for queue in worker.queues}
    unclaimed: dict[str, int] = {}
    for count in exam.unclaimed:
        unclaimed |= await count(exam)
    found = []
    for queue in stats:
        if not queue.ready or (queue.oldest_age_s or 0) < STUCK_AGE_S or queue.queue in paused:
            continue
        waiting = f"{queue.ready:,} waiting, the oldest for {queue.oldest_age_s:,.0f} s"
        if queue.queue in served:
            if queue.ready <= unclaimed.get(queue.queue, 0):
                continue  # more workers would not help; the product's own check names them
            text = f"{queue.queue} falls behind: {waiting}"
            remedy = "look at handler times; more --concurrency or --processes"
            found.append(Finding("draining", "warning", text, remedy))
        else:
            text = f"{queue.queue} is not draining, no live worker: {waiting}"
            remedy = f"penstock work --only {queue.queue}"
            found.append(Finding("draining", "error", text, remedy))
    return found


async def _expired(exam: Examination) -> list[Finding]:
    return [
        Finding(
            "leases",
            "warning",
            f"{queue.queue} has {queue.expired:,} expired leases that nobody has reaped",
            f"any worker reaps them: penstock run {queue.queue} --once",
        )
        for queue in await operations.queue_stats(exam.conn)
        if queue.expired
    ]


async def _dead(exam: Examination) -> list[Finding]:
    found = []
    for queue in await operations.queue_stats(exam.conn):
        if queue.dead:
            text = f"{queue.queue} has {queue.dead:,} dead letters"
            remedy = f"penstock dead list {queue.queue} --group"
            found.append(Finding("dead letters", "error", text, remedy))
        if queue.held:
            text = f"{queue.queue} holds {queue.held:,} items whose outcome is unknown"
            remedy = f"penstock dead list {queue.queue} --state HELD"
            found.append(Finding("dead letters", "error", text, remedy))
    return found


async def _paused(exam: Examination) -> list[Finding]:
    return [
        Finding(
            "pauses",
            "warning",
            f"{pause.target} is paused by {pause.paused_by} without an end: {pause.reason}",
            f"penstock resume {pause.target}",
        )
        for pause in await operations.pauses(exam.conn)
        if pause.until_at is None
    ]


async def _jobs(exam: Examination) -> list[Finding]:
    found = []
    for row in await call(exam.conn, _OVERDUE):
        if row["last_error"]:
            text = f"job {row['job']} failed last time: {row['last_error'][:120]}"
            found.append(Finding("jobs", "error", text, "see the worker's log: job_ran"))
        else:
            text = f"job {row['job']} is {row['late_s']:,.0f} s late (every {row['every_s']} s)"
            found.append(Finding("jobs", "warning", text, "see that a worker runs: penstock stats"))
    return found


async def _late(exam: Examination) -> list[Finding]:
    return [
        Finding(
            "late results",
            "warning",
            f"{row['queue']}: {row['number']:,} outcomes came after the lease was lost, last hour",
            f"raise lease_s of [queue.{row['queue']}], or call attempt.extend() in long handlers",
        )
        for row in await call(exam.conn, _LATE)
    ]


WORKLOAD_CHECKS = (
    Check("draining", _draining, needs_schema=True),
    Check("leases", _expired, needs_schema=True),
    Check("dead letters", _dead, needs_schema=True),
    Check("pauses", _paused, needs_schema=True),
    Check("jobs", _jobs, needs_schema=True),
    Check("late results", _late, needs_schema=True),
)
