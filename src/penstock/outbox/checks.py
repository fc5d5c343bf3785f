"""What `penstock doctor` asks of the outbox: which destination gets nothing, who hears of that."""

from penstock.kernel import operations as kernel_operations
from penstock.kernel.checks import Check, Examination, Finding
from penstock.kernel.checks.workload import LIVE_S
from penstock.kernel.database import call
from penstock.outbox import destinations, operations
from penstock.outbox.destinations import DestinationStats


async def _destinations(exam: Examination) -> list[Finding]:
    if not await destinations.installed(exam.conn):
        return []
    found = []
    for one in await destinations.stats(exam.conn):
        if one.fault is not None:
            found.append(_unusable(one))
        elif not one.enabled and one.ready + one.waiting:
            found.append(_disabled(one))
        elif one.enabled and one.breaker != "closed":
            found.append(_open(one))
    return found


_UNROUTED = "select topic, ready, oldest_age_s from app.outbox_unrouted()"


async def _topics(exam: Examination) -> list[Finding]:
    """Handlers are known once a worker has started: before that, nothing can be said of topics."""
    if not await destinations.installed(exam.conn) or not await _served(exam):
        return []
    return [
        Finding(
            "topics",
            "warning",
            f"no handler or route takes topic {row['topic']}: {row['ready']:,} waiting, the oldest "
            f"for {row['oldest_age_s']:,.0f} s",
            f"register a handler for it, or penstock route add {row['topic']} DESTINATION",
        )
        for row in await call(exam.conn, _UNROUTED)
    ]


async def _served(exam: Examination) -> bool:
    seen = await kernel_operations.workers(exam.conn)
    return any("outbox" in worker.queues for worker in seen if worker.silent_s < LIVE_S)


async def unclaimed(exam: Examination) -> dict[str, int]:
    """How many events are ready that no worker can claim."""
    if not await destinations.installed(exam.conn):
        return {}
    return {"outbox": sum(row["ready"] for row in await call(exam.conn, _UNROUTED))}


async def _alerts(exam: Examination) -> list[Finding]:
    if not await destinations.installed(exam.conn):
        return []
    state = await operations.alert_state(exam.conn)
    found = []
    if state.unsent:
        text = f"{state.unsent:,} dead or held items were alerted to nobody: no route for alerts"
        remedy = "penstock route add penstock.alert DESTINATION"
        found.append(Finding("alerts", "warning", text, remedy))
    if state.dead:
        text = f"{state.dead:,} alerts could not be delivered"
        remedy = "penstock dead list outbox --topic penstock.alert"
        found.append(Finding("alerts", "error", text, remedy))
    return found


def _waiting(one: DestinationStats) -> str:
    return f"{one.ready + one.waiting:,} waiting"


def _unusable(one: DestinationStats) -> Finding:
    text = f"destination {one.name} cannot be used by a worker ({one.fault}), {_waiting(one)}"
    return Finding("destinations", "error", text, f"penstock destination show {one.name}")


def _disabled(one: DestinationStats) -> Finding:
    why = f" after {one.last_error}" if one.last_error else ""
    text = f"destination {one.name} is disabled{why}, {_waiting(one)}"
    remedy = f"penstock destination enable {one.name} ; or penstock route remove ..."
    return Finding("destinations", "error", text, remedy)


def _open(one: DestinationStats) -> Finding:
    since = f" since {one.breaker_opened_at:%H:%M:%S}" if one.breaker_opened_at else ""
    text = f"destination {one.name} is open (breaker){since}, {one.last_error}, {_waiting(one)}"
    return Finding("destinations", "error", text, f"penstock destination test {one.name}")


CHECKS = (
    Check("destinations", _destinations, needs_schema=True),
    Check("topics", _topics, needs_schema=True),
    Check("alerts", _alerts, needs_schema=True),
)
