"""Named places where a test may stop, kill or delay the process; inert unless switched on.

`PENSTOCK_FAILPOINTS="after_claim=kill,before_finish=sleep:2"` arms them. Actions: `kill` (SIGKILL
to the own process, nothing is flushed), `exit` (immediate exit), `stop` (SIGSTOP), `sleep:S`,
`raise`. An optional count, `after_claim=kill@3`, fires on the third passage only.
"""

import os
import signal
import time

NAMES = frozenset(
    {
        "after_claim",  # rows are leased, nothing has run
        "before_effect",  # the lease was checked, the handler is about to run
        "during_effect",  # raised by a test's own handler or fake downstream
        "after_effect",  # the handler returned, nothing is recorded
        "before_finish",  # the outcome is known and not yet sent
        "mid_finish",  # inside the finishing transaction, before its commit
        "after_finish",  # committed
        "mid_migration",  # a migration has run, its transaction is still open
        "after_commit_ledger",  # intake: the ledger has the ticket, the engine does not know yet
    }
)

_armed: dict[str, tuple[str, int]] = {}
_passes: dict[str, int] = {}


def arm_from_environment() -> None:
    """Arm what `PENSTOCK_FAILPOINTS` says; called once, when a process of ours starts."""
    arm(os.environ.get("PENSTOCK_FAILPOINTS", ""))


def arm(specification: str) -> None:
    """Replace what is armed; an unknown name is an error, because a typo would test nothing."""
    _armed.clear()
    _passes.clear()
    for part in filter(None, (piece.strip() for piece in specification.split(","))):
        name, _, action = part.partition("=")
        if name not in NAMES:
            raise ValueError(f"unknown failpoint {name!r}; known: {', '.join(sorted(NAMES))}")
        action, _, count = action.partition("@")
        _armed[name] = (action, int(count or 0))


def failpoint(name: str) -> None:
    """Pass a named place. Costs one dictionary look-up when nothing is armed."""
    if not _armed or name not in _armed:
        return
    action, only_on = _armed[name]
    _passes[name] = _passes.get(name, 0) + 1
    if only_on and _passes[name] != only_on:
        return
    _act(name, action)


def _act(name: str, action: str) -> None:
    verb, _, argument = action.partition(":")
    if verb == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif verb == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif verb == "exit":
        os._exit(70)
    elif verb == "sleep":
        time.sleep(float(argument))
    elif verb == "raise":
        raise RuntimeError(f"failpoint {name}")
    else:
        raise ValueError(f"unknown failpoint action {action!r}")
