"""The end of the show: what was promised against what is written down, in both databases."""

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass, field

import asyncpg

from penstock.demo.plan import POOL
from penstock.demo.promises import Promise, Verdict, judge
from penstock.demo.show import Show
from penstock.demo.stage import Stage
from penstock.intake.prove import INVARIANTS, IntakeProof, Prover
from penstock.ledger import store as ledger_store

_TICKETS = "select user_id, resource_id::text from public.confirmed_tickets where pool_id = $1"


@dataclass(slots=True)
class Evidence:
    """Everything that speaks for or against the run."""

    verdict: Verdict
    intake: IntakeProof
    machine: dict[str, str]
    control: Verdict | None = None
    objections: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        """Whether the proof is complete."""
        return self.verdict.is_clean and self.intake.proof.holds and not self.objections


async def collect(
    stage: Stage, show: Show, promises: Sequence[Promise], *, false_sold_out: Sequence[str]
) -> Evidence:
    """Read both databases and compare; `false_sold_out` is what the buyers can hold against I8."""
    engine = await asyncpg.connect(stage.engine_url())
    ledger = await asyncpg.connect(stage.ledger_url())
    try:
        proof = await Prover(engine, ledger, ledger_store).prove()
        tickets = [Promise(*row) for row in await ledger.fetch(_TICKETS, POOL)]
        machine = await _machine(engine)
    finally:
        await engine.close()
        await ledger.close()
    verdict = judge(promises, tickets, seats=show.plan.slots, wanted_each=1)
    return Evidence(verdict, proof, machine, objections=_objections(show, verdict, false_sold_out))


def _objections(show: Show, verdict: Verdict, false_sold_out: Sequence[str]) -> list[str]:
    found = list(false_sold_out)
    slots = show.plan.slots
    if not verdict.promised == verdict.tickets == slots:
        found.append(f"{slots} seats, {verdict.promised} promised, {verdict.tickets} tickets")
    found += [f"{fault.name}: {fault.outcome}" for fault in show.faults if fault.state != "done"]
    if show.count("odd"):
        found.append(f"{show.count('odd')} answers that should not have come")
    if show.count("let_in"):
        found.append(f"{show.count('let_in')} forged tokens were accepted")
    return found


async def _machine(conn: "asyncpg.Connection[asyncpg.Record]") -> dict[str, str]:
    found = {"cores": str(os.cpu_count()), "python": platform.python_version()}
    for name in ("server_version", "synchronous_commit", "fsync"):
        found[name] = str(await conn.fetchval("select current_setting($1)", name)).split()[0]
    return found


def lines(show: Show, evidence: Evidence) -> list[str]:
    """The proof as it is printed."""
    verdict, proof = evidence.verdict, evidence.intake.proof
    equation = next(one for one in evidence.intake.equations if one.pool_id == POOL)
    broken = sorted({found.invariant for found in proof.violations})
    told = f"{len(INVARIANTS) - len(broken)}/{len(INVARIANTS)}"
    holds = f"I1…I9 hold ({told})" if not broken else f"broken: {', '.join(broken)} ({told} hold)"
    machine = evidence.machine
    where = (
        f"{machine['cores']} cores, PG {machine['server_version']}, synchronous_commit="
        f"{machine['synchronous_commit']}, load on the same machine"
    )
    found = [
        f"{equation.text.replace('slots', 'seats')}      {holds}",
        f"oversold {verdict.oversold}   lost {verdict.lost}   double {verdict.double}      "
        f"{show.claims_per_s:,.0f} claims/s, p50 {show.crowd.get('p50_ms', 0):.0f} ms, "
        f"p99 {show.crowd.get('p99_ms', 0):.0f} ms while the engine was up",
        f"on {where}",
    ]
    found += [f"✗ {one.invariant} {one.subject}: {one.detail}" for one in proof.violations[:5]]
    found += [f"✗ {objection}" for objection in evidence.objections]
    control = evidence.control
    if control is not None:
        found.append(
            f"same faults, naive version:  oversold {control.oversold}, lost {control.lost}, "
            f"double {control.double}   (of {control.promised} buyers who were told yes)"
        )
    return found


def document(show: Show, evidence: Evidence) -> dict[str, object]:
    """What --json prints."""
    verdict, control = evidence.verdict, evidence.control
    return {
        "slots": show.plan.slots,
        "buyers": show.plan.buyers,
        "claimed": verdict.promised,
        "confirmed": verdict.tickets,
        "oversold": verdict.oversold,
        "lost": verdict.lost,
        "double": verdict.double,
        "claims_per_s": round(show.claims_per_s),
        "p50_ms": show.crowd.get("p50_ms", 0.0),
        "p99_ms": show.crowd.get("p99_ms", 0.0),
        "faults": [
            {
                "at_s": round(fault.at_s, 1),
                "fault": fault.name,
                "outcome": fault.outcome,
                "ok": fault.state == "done",
            }
            for fault in show.faults
        ],
        "refused": dict(show.refused()),
        "control": {}
        if control is None
        else {"oversold": control.oversold, "lost": control.lost, "double": control.double},
        "machine": evidence.machine,
        "proof": "ok" if evidence.holds else "failed",
    }
