"""The how-to pages of the sinks: what they configure is accepted, what they show works."""

import re
import tomllib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from standardwebhooks import Webhook, WebhookVerificationError
from tests.support.cli import make_cli

from penstock.kernel.settings import Settings
from penstock.outbox.sinks import function
from penstock.outbox.sinks.config import config_of
from penstock.outbox.sinks.factory import MODULES, make_sink
from penstock.outbox.sinks.sink import Destination
from penstock.testing import signed

GUIDES = Path(__file__).parents[3] / "docs" / "how-to"
PAGES = sorted(GUIDES.glob("deliver-to-*.md"))
BLOCK = re.compile(r"^```(\S+)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SECRET = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="


def blocks(page: Path, kind: str) -> list[str]:
    return [body for info, body in BLOCK.findall(page.read_text("utf-8")) if info == kind]


def configured() -> Iterator[tuple[str, dict[str, Any]]]:
    for page in PAGES:
        for block in blocks(page, "toml"):
            yield from tomllib.loads(block).get("destination", {}).items()


def test_there_is_a_page_for_every_kind_and_its_destination_is_accepted() -> None:
    kinds = set()
    for name, values in configured():
        destination = Destination(name, values["kind"], values.get("config", {}))
        if values["kind"] == function.KIND:
            assert function.registration(destination, source="test").options.size == 100
        else:
            make_sink(destination, Settings())
        kinds.add(values["kind"])
    assert kinds == {*MODULES, function.KIND}


def test_the_tables_name_every_setting_of_the_brokers() -> None:
    for kind in ("kafka", "nats"):
        (page,) = (page for page in PAGES if page.stem.endswith(kind))
        table = set(re.findall(r"^\| `(\w+)` \|", page.read_text("utf-8"), re.MULTILINE))
        module = __import__(MODULES[kind], fromlist=["Config"])
        config = config_of(Destination("there", kind, {}), module.Config)
        assert table == set(config.__struct_fields__), kind


def test_a_file_of_all_pages_can_be_applied(
    capsys: pytest.CaptureFixture[str], database_url: str, tmp_path: Path
) -> None:
    cli = make_cli(capsys, "--database", database_url)
    file = tmp_path / "destinations.toml"
    file.write_text("\n".join(block for page in PAGES for block in blocks(page, "toml")))
    with psycopg.connect(database_url) as conn:
        for block in (block for page in PAGES for block in blocks(page, "sql")):
            conn.execute(block)
    applied = cli("apply", str(file), "--reason", "try the pages", "--yes")
    assert applied.code == 0, applied.out + applied.err
    with psycopg.connect(database_url) as conn:
        rows = conn.execute("select count(*) from public.outbox_destinations").fetchall()
    assert rows == [(len(list(configured())),)]


def test_the_receiver_of_the_page_knows_a_forgery_and_a_repetition() -> None:
    (page,) = (page for page in PAGES if page.stem.endswith("webhook"))
    names: dict[str, Any] = {}
    for block in blocks(page, "python"):
        exec(compile(block, page.name, "exec"), names)
    headers, body = signed("standardwebhooks", SECRET, b"{}", at=datetime.now(UTC))
    headers = {name.lower(): value for name, value in headers.items()}
    assert Webhook(SECRET).verify(body, headers) == {}
    assert names["receive"](SECRET, body, headers) == "new"
    assert names["receive"](SECRET, body, headers) == "again"
    with pytest.raises(WebhookVerificationError):
        names["receive"](SECRET, body + b" ", headers)


def test_the_function_of_the_page_takes_an_event(database_url: str) -> None:
    (page,) = (page for page in PAGES if page.stem.endswith("function"))
    event = '[{"id": "0197a000-0000-7000-8000-000000000001", "data": {"order_id": 42}}]'
    with psycopg.connect(database_url) as conn:
        for block in blocks(page, "sql"):
            conn.execute(block)
        conn.execute("select app.outbox_call_function('public.invoice', %s)", [event])
        assert conn.execute("select order_id from invoices").fetchall() == [(42,)]
