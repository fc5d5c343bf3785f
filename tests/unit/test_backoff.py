import itertools
import random

from hypothesis import given
from hypothesis import strategies as st

from penstock.kernel.backoff import Backoff


@given(attempt=st.integers(-5, 10_000), seed=st.integers(0, 2**32))
def test_a_delay_lies_between_base_and_cap(attempt: int, seed: int) -> None:
    backoff = Backoff(base_s=2.0, cap_s=60.0, random=random.Random(seed))
    assert 2.0 <= backoff.delay_s(attempt) <= 60.0


def test_the_ceiling_doubles_until_the_cap() -> None:
    class Highest(random.Random):
        def uniform(self, a: float, b: float) -> float:
            return b

    backoff = Backoff(base_s=1.0, cap_s=10.0, random=Highest())
    assert [backoff.delay_s(attempt) for attempt in (1, 2, 3, 4, 5)] == [2.0, 4.0, 8.0, 10.0, 10.0]


def test_a_base_above_the_cap_gives_the_cap() -> None:
    assert Backoff(base_s=100.0, cap_s=5.0).delay_s(1) == 5.0


def test_retry_after_is_honoured_and_capped() -> None:
    backoff = Backoff(base_s=1.0, cap_s=60.0)
    assert backoff.delay_s(1, retry_after_s=7.5) == 7.5
    assert backoff.delay_s(1, retry_after_s=1e9) == 60.0
    assert backoff.delay_s(1, retry_after_s=-5) == 0.0


def test_an_endless_series_never_overflows() -> None:
    delays = list(itertools.islice(Backoff(cap_s=3.0).delays_s(), 2000))
    assert max(delays) <= 3.0
    assert len(set(delays)) > 1900, "jitter keeps workers apart"
