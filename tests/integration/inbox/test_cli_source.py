"""`penstock source` and `penstock tail` on a real database."""

import asyncio
import json
import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from tests.support.cli import Cli, make_cli
from tests.support.serving import serving

from penstock import Penstock

SECRET = "whsec_of_the_command_line"


@pytest.fixture
def cli(
    capsys: pytest.CaptureFixture[str], database_url: str, monkeypatch: pytest.MonkeyPatch
) -> Cli:
    for name in ("PENSTOCK_DATABASE_URL", "DATABASE_URL", "DB_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("STRIPE_SECRET", SECRET)
    monkeypatch.setenv("PENSTOCK_HTTP_ALLOW_PRIVATE", "127.0.0.1")
    return make_cli(capsys, "--database", database_url)


@pytest.fixture
def sql(database_url: str) -> Iterator[Any]:
    with psycopg.connect(database_url, autocommit=True) as conn:
        yield conn


def add(cli: Cli, *more: str) -> Any:
    given = ("--provider", "stripe", "--secret", "env:STRIPE_SECRET", "--reason", "r", "--yes")
    return cli("source", "add", "stripe", *given, *more)


def test_a_source_is_added_listed_rotated_and_paused(cli: Cli, sql: Any) -> None:
    assert add(cli, "--tolerance-s", "60", "--ignore-unhandled").code == 0
    listed = json.loads(cli("--json", "source", "list").out)
    assert [(s["source"], s["provider"], s["tolerance_s"]) for s in listed] == [
        ("stripe", "stripe", 60)
    ]
    rotated = ("source", "rotate", "stripe", "--secret", "env:NEXT", "--reason", "r", "--yes")
    assert cli(*rotated).code == 0
    refs = "select secret_refs from webhook_endpoints"
    assert sql.execute(refs).fetchone()[0] == ["env:NEXT", "env:STRIPE_SECRET"]
    assert cli("source", "rotate", "stripe", "--finish", "--reason", "r", "--yes").code == 0
    assert sql.execute(refs).fetchone()[0] == ["env:NEXT"]
    assert cli("source", "pause", "stripe", "--reason", "r", "--yes").code == 0
    assert sql.execute("select target from penstock.pause").fetchone()[0] == "source/stripe"


def test_a_secret_that_is_written_down_is_refused_and_not_repeated(cli: Cli, sql: Any) -> None:
    given = ("--provider", "stripe", "--secret", SECRET, "--reason", "r", "--yes")
    ran = cli("source", "add", "stripe", *given)
    assert (ran.code, SECRET in ran.out + ran.err) == (2, False)
    assert sql.execute("select count(*) from webhook_endpoints").fetchone()[0] == 0


def test_a_source_without_a_signed_time_is_remembered_for_ever(cli: Cli, sql: Any) -> None:
    given = ("--provider", "github", "--secret", "env:STRIPE_SECRET", "--reason", "r", "--yes")
    assert cli("source", "add", "hub", *given).code == 0
    query = "select timestamp_signed from webhook_endpoints"
    assert sql.execute(query).fetchone()[0] is False


def test_a_signed_sample_is_sent_received_and_shown(cli: Cli, database_url: str) -> None:
    add(cli)
    ready, done = threading.Event(), threading.Event()
    address: list[str] = []

    async def serve() -> None:
        async with serving(Penstock(database_url)) as base:
            address.append(base)
            ready.set()
            await asyncio.to_thread(done.wait)

    server = threading.Thread(target=lambda: asyncio.run(serve()))
    server.start()
    try:
        assert ready.wait(20)
        url = f"{address[0]}/webhooks/stripe"
        sent = cli("--json", "source", "send-test", "stripe", "--url", url)
        assert sent.code == 0, sent.err
        event_id = json.loads(sent.out)["event_id"]
        shown = cli("tail", "inbox", "--no-follow")
        assert (event_id in shown.out, "pending" in shown.out) == (True, True)
        assert cli("tail", "--no-follow", "--source", "other").out == ""
    finally:
        done.set()
        server.join()
