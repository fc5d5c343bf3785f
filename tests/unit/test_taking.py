"""What is told of a claim whose events end together: runs of numbers, by token."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import pytest
from tests.support.handlers import make_item

from penstock.kernel.queue import Item
from penstock.outbox.taking import runs


@dataclass(frozen=True)
class Case:
    """Numbers in the order in which they ended, by claim, and the runs they make."""

    ended: list[tuple[str, int]]
    runs: list[tuple[str, int, int]]


def _items(ended: list[tuple[str, int]], tokens: dict[str, UUID]) -> list[Item]:
    items: list[Item] = []
    for claim, number in ended:
        item = make_item(number)
        item.lease.token = tokens.setdefault(claim, uuid4())
        items.append(item)
    return items


@pytest.mark.parametrize(
    "case",
    [
        Case([("a", 1)], [("a", 1, 1)]),
        Case([("a", 1), ("a", 2), ("a", 3)], [("a", 1, 3)]),
        Case([("a", 3), ("a", 1), ("a", 2)], [("a", 1, 3)]),
        Case([("a", 1), ("a", 3)], [("a", 1, 1), ("a", 3, 3)]),
        Case([("a", 1), ("b", 2)], [("a", 1, 1), ("b", 2, 2)]),
        Case([("a", 1), ("b", 2), ("a", 3)], [("a", 1, 1), ("b", 2, 2), ("a", 3, 3)]),
    ],
)
def test_numbers_that_follow_each_other_make_a_run(case: Case) -> None:
    tokens: dict[str, UUID] = {}
    made: Any = runs(_items(case.ended, tokens))
    names = {token: claim for claim, token in tokens.items()}
    told = [(names[t], first, last) for t, first, last in zip(*made, strict=True)]
    assert told == case.runs
