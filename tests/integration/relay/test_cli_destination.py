"""`penstock destination`, `route`, `topic`, and both in `apply`, `export`, `stats` and `doctor`."""

import asyncio
import threading
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.integration.relay.conftest import SECRET
from tests.support.brokers import free_port
from tests.support.cli import Cli, make_cli
from tests.support.receiver import Receiver, receiving

from penstock.outbox.destinations import DestinationStats
from penstock.outbox.metrics import exposition

WHY = ("--reason", "test", "--yes")


@pytest.fixture
def cli(
    capsys: pytest.CaptureFixture[str], database_url: str, monkeypatch: pytest.MonkeyPatch
) -> Cli:
    for name in ("PENSTOCK_DATABASE_URL", "DATABASE_URL", "DB_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    monkeypatch.setenv("PENSTOCK_HTTP_ALLOW_PRIVATE", "127.0.0.1")
    return make_cli(capsys, "--database", database_url)


@pytest.fixture
def sql(database_url: str) -> Iterator[Any]:
    with psycopg.connect(database_url, autocommit=True) as conn:
        yield conn


@pytest.fixture
def elsewhere() -> Iterator[Receiver]:
    """A receiver on a loop of its own, for commands that run one themselves."""
    ready = threading.Event()
    found: list[tuple[Receiver, asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def serve() -> None:
        async with receiving() as receiver:
            stop = asyncio.Event()
            found.append((receiver, asyncio.get_running_loop(), stop))
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=asyncio.run, args=[serve()])
    thread.start()
    assert ready.wait(10)
    receiver, loop, stop = found[0]
    yield receiver
    loop.call_soon_threadsafe(stop.set)
    thread.join(10)


def _add(cli: Cli, url: str, *more: str) -> Any:
    given = ("--kind", "http", "--url", url, "--secret", "env:HOOK_SECRET", *WHY)
    return cli("destination", "add", "acme", *given, *more)


def test_a_destination_is_added_changed_shown_and_switched(cli: Cli, sql: Any) -> None:
    url = "https://hooks.example.com/in"
    assert _add(cli, url, "--rate-per-s", "5", "--set", "timeout_s=3").code == 0
    (listed,) = cli("--json", "destination", "list").document
    assert (listed["name"], listed["kind"], listed["state"]) == ("acme", "http", "ok")
    assert cli("destination", "add", "acme", "--concurrency", "2", *WHY).code == 0
    shown = cli("--json", "destination", "show", "acme").document
    assert shown["config"] == {"url": url, "timeout_s": 3}
    assert (shown["concurrency"], shown["rate_per_s"]) == (2, 5.0)
    assert shown["secret_refs"] == ["env:HOOK_SECRET"]
    assert cli("destination", "disable", "acme", *WHY).code == 0
    (listed,) = cli("--json", "destination", "list").document
    assert listed["state"] == "disabled"
    assert cli("destination", "enable", "acme", *WHY).code == 0
    assert cli("destination", "rotate", "acme", "--secret", "env:HOOK_SECRET_NEXT", *WHY).code == 0
    assert cli("destination", "rotate", "acme", "--finish", *WHY).code == 0
    refs = sql.execute("select secret_refs from outbox_destinations").fetchone()[0]
    assert refs == ["env:HOOK_SECRET_NEXT"]
    audited = sql.execute("select count(*) from audit.audit_logs").fetchone()[0]
    assert audited == 6, "every change has its row"


@pytest.mark.parametrize(
    "given",
    [
        ("--kind", "http"),
        ("--kind", "http", "--url", "http://10.0.0.1/"),
        ("--kind", "http", "--url", "https://x.example.com", "--set", "tiemout_s=3"),
        ("--kind", "http", "--url", "https://x.example.com", "--secret", "whsec_abc"),
        ("--url", "https://x.example.com"),
    ],
)
def test_what_no_worker_could_use_is_refused(cli: Cli, sql: Any, given: tuple[str, ...]) -> None:
    ran = cli("destination", "add", "acme", *given, *WHY)
    assert ran.code == 2, ran.out + ran.err
    assert sql.execute("select count(*) from outbox_destinations").fetchone()[0] == 0


def test_a_header_with_a_credential_is_refused_by_the_database(cli: Cli, sql: Any) -> None:
    headers = 'headers={"authorization": "Bearer abc"}'
    ran = cli(
        "destination",
        "add",
        "acme",
        "--kind",
        "http",
        "--url",
        "https://x.example.com",
        "--set",
        headers,
        *WHY,
    )
    assert (ran.code, "Bearer" in ran.err) == (2, False)
    assert sql.execute("select count(*) from outbox_destinations").fetchone()[0] == 0


def test_a_secret_that_no_worker_would_give_is_noted(cli: Cli) -> None:
    given = ("--kind", "http", "--url", "https://a.example.com", *WHY)
    ran = cli("destination", "add", "acme", *given, "--secret", "env:LEDGER_PASSWORD")
    assert (ran.code, "env:LEDGER_PASSWORD has to be in destination_secrets" in ran.out) == (
        0,
        True,
    )
    ran = cli("destination", "add", "acme", *given, "--secret", "env:HOOK_SECRET")
    assert (ran.code, "destination_secrets" in ran.out) == (0, False)


def test_a_destination_is_tried(cli: Cli, elsewhere: Receiver) -> None:
    assert _add(cli, elsewhere.url()).code == 0
    ran = cli("--json", "destination", "test", "acme")
    assert (ran.code, ran.document["verdict"]) == (0, "done")
    (one,) = elsewhere.seen
    assert one.document["type"] == "penstock.test"
    assert one.headers["webhook-signature"].startswith("v1,")
    elsewhere.answering = lambda _one: 500
    ran = cli("--json", "destination", "test", "acme")
    assert (ran.code, ran.document["code"]) == (1, "HTTP_500")
    elsewhere.answering = lambda _one: 403
    assert "the receiver answered 403 Forbidden" in cli("destination", "test", "acme").out
    assert cli("destination", "test", "nobody").code == 1


def test_a_destination_that_is_not_there_says_why(cli: Cli) -> None:
    assert _add(cli, f"http://127.0.0.1:{free_port()}/").code == 0
    ran = cli("--json", "destination", "test", "acme")
    assert (ran.code, ran.document["code"]) == (1, "NETWORK")
    assert ran.document["reason"].startswith("127.0.0.1: ")


def test_routes_and_topics(cli: Cli, sql: Any) -> None:
    assert _add(cli, "https://hooks.example.com/in").code == 0
    big = ("--filter", "$.amount > 100")
    assert cli("route", "add", "orders.*", "acme", "--name", "big", *big, *WHY).code == 0
    assert cli("route", "add", "refunds", "acme", *WHY).code == 0
    assert cli("route", "add", "x", "nobody", *WHY).code != 0
    listed = cli("--json", "route", "list").document
    assert [(r["route"], r["topic"], r["filter"]) for r in listed] == [
        ("acme/refunds", "refunds", None),
        ("big", "orders.*", "$.amount > 100"),
    ]
    sql.execute("select app.outbox_put_schema('orders.paid', 2, '{\"type\": \"object\"}', false)")
    topics = cli("--json", "topic", "list").document
    assert topics == [
        {"topic": "orders.paid", "versions": [2], "goes_to": ["acme (filtered)"]},
        {"topic": "refunds", "versions": [], "goes_to": ["acme"]},
    ]
    assert cli("topic", "schema", "orders.paid").document == {"type": "object"}
    sql.execute(
        "insert into public.outbox (topic, payload, route, event_topic)"
        " select 'big', '{}', 'big', 'orders.paid' from generate_series(1, 1001)"
    )
    removed = cli("--json", "route", "remove", "big", *WHY)
    assert (removed.code, removed.document["cancelled"]) == (0, 1001)
    assert cli("route", "remove", "big", *WHY).code != 0


POLICY = """
[route.big]
topic = "orders.*"
destination = "acme"
filter = "$.amount > 100"

[destination.acme]
kind = "http"
secret_refs = ["env:HOOK_SECRET"]
rate_per_s = 2.5
config = {url = "https://hooks.example.com/in", headers = {x-shop = "blue"}}
"""


def test_destinations_and_routes_in_a_policy_file(cli: Cli, sql: Any, tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(POLICY)
    applied = cli("apply", str(file), *WHY)
    assert applied.code == 0, applied.err
    again = cli("--json", "apply", str(file), *WHY)
    assert again.document["changes"] == [], "the second time nothing changes"
    exported = tomllib.loads(cli("export").out)
    assert exported["destination"]["acme"]["config"]["headers"] == {"x-shop": "blue"}
    assert exported["route"]["big"]["filter"] == "$.amount > 100"
    file.write_text(cli("export").out)
    assert cli("--json", "apply", str(file), *WHY).document["changes"] == []
    file.write_text("[destination.acme]\nconcurrency = 3\n")
    assert cli("apply", str(file), *WHY).code == 0
    row = sql.execute("select kind, concurrency, rate_per_s from outbox_destinations").fetchone()
    assert (row[0], row[1], float(row[2])) == ("http", 3, 2.5)


def test_stats_doctor_and_metrics_tell_what_gets_nothing(cli: Cli, sql: Any) -> None:
    assert _add(cli, "https://hooks.example.com/in").code == 0
    assert cli("route", "add", "orders.*", "acme", "--name", "acme", *WHY).code == 0
    assert "destination" not in cli("stats").out
    sql.execute("select app.outbox_publish(null, 'orders.paid', '{}')")
    sql.execute("select app.outbox_expand()")
    sql.execute("select app.outbox_weigh('{acme}', '{0}', '{9}', '{HTTP_503}')")
    assert "destination acme: open HTTP_503, 1 waiting" in cli("stats").out
    found = [f["finding"] for f in cli("--json", "doctor").document["findings"]]
    assert any("acme is open (breaker) since" in text and "1 waiting" in text for text in found)
    assert cli("--json", "stats").document["destinations"][0]["breaker"] == "open"
    sql.execute("select app.outbox_gone(name, 'HTTP_410', version) from outbox_destinations")
    found = [f["finding"] for f in cli("--json", "doctor").document["findings"]]
    assert "destination acme is disabled after HTTP_410, 1 waiting" in found
    sql.execute("select app.outbox_fault('{acme}', '{its secret is missing}')")
    found = [f["finding"] for f in cli("--json", "doctor").document["findings"]]
    assert any("its secret is missing" in text for text in found)


def test_dead_letters_of_one_destination(cli: Cli, sql: Any) -> None:
    for name in ("acme", "other"):
        url = f"https://{name}.example.com"
        assert cli("destination", "add", name, "--kind", "http", "--url", url, *WHY).code == 0
        assert cli("route", "add", "orders.*", name, "--name", name, *WHY).code == 0
    sql.execute("select app.outbox_publish(null, 'orders.paid', '{}') from generate_series(1, 3)")
    sql.execute("select app.outbox_expand()")
    sql.execute("""
        with claimed as materialized (
            select * from app.outbox_claim_for('{acme,other}', '{9,9}', gen_random_uuid()))
        select app.outbox_mark_failed(array_agg(seq), array_agg(id), array_agg(processing_token),
            array_agg('reject'::text), array_agg(0.0::float8), array_agg('HTTP_404'::text),
            array_agg(''::text))
        from claimed""")
    assert len(cli("--json", "dead", "list", "outbox").document) == 6
    found = cli("--json", "dead", "list", "outbox", "--destination", "acme").document
    assert len(found) == 3
    one = found[0]["id"]
    replayed = cli("dead", "replay", "outbox", one, "--destination", "other", *WHY)
    assert "nothing matches" in replayed.out
    given = ("--destination", "acme", "--code", "HTTP_404", "--reason", "fixed", "--yes")
    assert cli("dead", "replay", "outbox", *given).code == 0
    left = sql.execute("select route, count(*) from outbox where dead_at is not null group by 1")
    assert left.fetchall() == [("other", 3)]


def test_a_pause_of_a_destination_is_taken_and_shown(cli: Cli) -> None:
    assert _add(cli, "https://hooks.example.com/in").code == 0
    assert cli("pause", "destination/acme", *WHY).code == 0
    (listed,) = cli("--json", "destination", "list").document
    assert listed["state"] == "paused"


def test_gauges_of_destinations() -> None:
    one = DestinationStats(
        "acme",
        "http",
        True,
        8,
        None,
        "open",
        None,
        None,
        5,
        "HTTP_503",
        None,
        None,
        False,
        3,
        4,
        0,
        1,
    )
    text = exposition([one])
    assert 'penstock_destination_breaker{destination="acme"} 2' in text
    assert 'penstock_destination_waiting{destination="acme"} 7' in text
    assert exposition([]) == ""
