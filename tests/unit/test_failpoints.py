from collections.abc import Iterator

import pytest

from penstock.kernel import failpoints


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    failpoints.arm("")


def test_nothing_happens_unless_armed() -> None:
    failpoints.arm("")
    for name in failpoints.NAMES:
        failpoints.failpoint(name)


def test_an_armed_place_acts_and_the_others_do_not() -> None:
    failpoints.arm("after_claim=raise")
    failpoints.failpoint("before_finish")
    with pytest.raises(RuntimeError, match="failpoint after_claim"):
        failpoints.failpoint("after_claim")


def test_a_count_fires_on_that_passage_only() -> None:
    failpoints.arm("after_claim=raise@2")
    failpoints.failpoint("after_claim")
    with pytest.raises(RuntimeError):
        failpoints.failpoint("after_claim")
    failpoints.failpoint("after_claim")


def test_a_name_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(ValueError, match="unknown failpoint"):
        failpoints.arm("after_clam=kill")


def test_an_action_that_does_not_exist_is_an_error() -> None:
    failpoints.arm("after_claim=explode")
    with pytest.raises(ValueError, match="unknown failpoint action"):
        failpoints.failpoint("after_claim")


def test_arming_again_replaces_what_was_armed(monkeypatch: pytest.MonkeyPatch) -> None:
    failpoints.arm("after_claim=raise")
    monkeypatch.setenv("PENSTOCK_FAILPOINTS", "before_effect=sleep:0")
    failpoints.arm_from_environment()
    failpoints.failpoint("after_claim")
    failpoints.failpoint("before_effect")
