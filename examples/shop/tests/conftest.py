"""What the shop's tests need besides the fixtures of penstock.testing."""

from collections.abc import Callable

import psycopg
import pytest


def create_tables(url: str) -> None:
    with psycopg.connect(url) as conn:
        conn.execute("create table effects (kind text, number int)")


@pytest.fixture(scope="session")
def penstock_setup() -> Callable[[str], None]:
    return create_tables
