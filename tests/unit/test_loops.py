"""The loop of long work: cycles are looked for seldom while it runs, and as before afterwards."""

import gc

import pytest

from penstock.kernel.loops import GC_THRESHOLDS, run_fast


async def _seen() -> tuple[tuple[int, int, int], int]:
    return gc.get_threshold(), gc.get_freeze_count()


async def _broken() -> None:
    raise ZeroDivisionError


def test_collections_are_rare_while_it_runs_and_no_longer() -> None:
    before = gc.get_threshold()
    thresholds, frozen = run_fast(_seen())
    assert thresholds == GC_THRESHOLDS
    assert frozen > 0, "what was there before is not looked through again"
    with pytest.raises(ZeroDivisionError):
        run_fast(_broken())
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0
