import io
import json
import logging
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import pytest

from penstock.kernel.events import Handled, HandlerRaised
from penstock.kernel.logs import (
    WITHHELD,
    capture_standard_logging,
    log_subscriber,
    make_logger,
    redact,
)
from penstock.kernel.secrets import MASK, Secret
from penstock.kernel.settings import Settings, with_values

ITEM = UUID("01890000-0000-7000-8000-000000000001")
WORKER = UUID("01890000-0000-7000-8000-000000000002")
DEBUG = with_values(Settings(), log_level="debug")


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def handled() -> Handled:
    return Handled(
        queue="outbox",
        topic="orders.paid",
        item_id=ITEM,
        attempt=2,
        verdict="done",
        code="",
        latency_ms=1.5,
    )


def test_an_observation_is_one_line_with_a_constant_message() -> None:
    stream = io.StringIO()
    log_subscriber(make_logger(DEBUG, stream), WORKER)(handled())
    (line,) = lines(stream)
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "handled",
        "level": "debug",
        "worker_id": str(WORKER),
        "queue": "outbox",
        "topic": "orders.paid",
        "item_id": str(ITEM),
        "attempt": 2,
        "verdict": "done",
        "code": "",
        "latency_ms": 1.5,
    }


def test_the_level_of_the_settings_holds() -> None:
    stream = io.StringIO()
    write = log_subscriber(make_logger(Settings(), stream))
    write(handled())
    raised = HandlerRaised(queue="q", topic="t", item_id=ITEM, attempt=1, error_type="ValueError")
    write(raised)
    assert [line["event"] for line in lines(stream)] == ["handler_raised"]


@pytest.mark.parametrize(
    "fields",
    [
        {"password": "canary"},
        {"service_role_key": "canary"},
        {"X-Outbox-Secret": "canary"},
        {"authorization": "canary"},
        {"lease_token": "canary"},
        {"headers": {"cookie": "canary", "x": "1"}},
        {"nested": [{"deep": {"api_key": "canary"}}]},
        {"payload": {"card": "canary"}},
        {"data": "canary"},
        {"raw_body": b"canary"},
        {"something": b"canary"},
        {"url": "postgres://app:canary@h/db"},
        {"error": "connecting to postgres://app:canary@h/db failed"},
        {"note": "Bearer canary-canary"},
        {"holder": Secret("canary")},
        {"tokens": ["canary"]},
    ],
)
def test_what_is_or_looks_secret_never_reaches_a_line(fields: Mapping[str, object]) -> None:
    stream = io.StringIO()
    make_logger(Settings(), stream).info("something", **fields)
    assert "canary" not in stream.getvalue()
    assert len(lines(stream)) == 1


def test_keys_that_name_a_thing_stay_readable() -> None:
    kept = redact(None, "info", {"ordering_key": "customer-7", "dedupe_key": "x", "event": "e"})
    assert kept == {"ordering_key": "customer-7", "dedupe_key": "x", "event": "e"}
    assert redact(None, "info", {"token": None, "password": ""}) == {"token": None, "password": ""}


def test_a_structure_without_end_is_cut() -> None:
    endless: dict[str, Any] = {}
    endless["inner"] = endless
    assert WITHHELD in json.dumps(redact(None, "info", {"x": endless}))


def test_a_line_break_in_data_makes_no_second_line() -> None:
    stream = io.StringIO()
    make_logger(Settings(), stream).info("something", topic='a\n{"event": "forged"}')
    assert len(stream.getvalue().splitlines()) == 1


def test_what_libraries_log_is_redacted_and_keeps_only_the_type_of_an_error() -> None:
    stream = io.StringIO()
    root = logging.getLogger()
    level = root.level
    handler = capture_standard_logging(Settings(), stream)
    try:
        logging.getLogger("some.library").warning("url postgres://u:canary@h/db")
        try:
            raise ValueError("payload canary")
        except ValueError:
            logging.getLogger("some.library").exception("failed")
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
    assert "canary" not in stream.getvalue()
    first, second = lines(stream)
    assert first["event"] == f"url postgres://u:{MASK}@h/db"
    assert second["error_type"] == "ValueError"


def test_the_console_form_is_for_people() -> None:
    stream = io.StringIO()
    settings = with_values(Settings(), log_format="console")
    make_logger(settings, stream).info("worker_started", queues=["outbox"], password="canary")
    assert "worker_started" in stream.getvalue()
    assert "canary" not in stream.getvalue()
