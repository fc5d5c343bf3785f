import importlib
from datetime import UTC, datetime
from time import monotonic
from typing import Any
from uuid import uuid4

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from penstock.kernel import traces as traces_module
from penstock.kernel.lease import Lease
from penstock.kernel.queue import Item
from penstock.kernel.traces import Traces
from penstock.kernel.verdict import DONE, Reject

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def item(headers: dict[str, str]) -> Item:
    now = datetime.now(UTC)
    return Item(
        key=1,
        id=uuid4(),
        topic="orders.paid",
        payload=b'{"card": "canary"}',
        headers=headers,
        created_at=now,
        attempt=2,
        max_attempts=10,
        lease=Lease(uuid4(), 1, now, monotonic() + 30),
    )


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def traces(exporter: InMemorySpanExporter) -> Traces:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return Traces(provider)


def test_handling_is_a_span_linked_to_the_trace_that_published(
    traces: Traces, exporter: InMemorySpanExporter
) -> None:
    handled = item({"traceparent": PARENT})
    with traces.handling("outbox", handled) as span:
        span.end(DONE)
    (found,) = exporter.get_finished_spans()
    assert found.kind is SpanKind.CONSUMER
    assert [f"{link.context.trace_id:032x}" for link in found.links] == [PARENT[3:35]]
    assert found.attributes is not None
    assert found.attributes["messaging.message.id"] == str(handled.id)
    assert found.attributes["penstock.verdict"] == "done"
    assert "canary" not in found.to_json()


def test_a_broken_traceparent_is_no_link_and_no_error(
    traces: Traces, exporter: InMemorySpanExporter
) -> None:
    with traces.handling("outbox", item({"traceparent": "nonsense"})) as span:
        span.end(Reject("BAD"))
    (found,) = exporter.get_finished_spans()
    assert not found.links
    assert found.status.status_code is StatusCode.ERROR
    assert found.attributes is not None
    assert found.attributes["penstock.code"] == "BAD"


def test_an_exception_leaves_its_type_and_not_its_text(
    traces: Traces, exporter: InMemorySpanExporter
) -> None:
    with pytest.raises(ValueError, match="canary"), traces.handling("outbox", item({})):
        raise ValueError("canary")
    (found,) = exporter.get_finished_spans()
    assert found.attributes is not None
    assert found.attributes["error.type"] == "ValueError"
    assert "canary" not in found.to_json()


def test_the_current_trace_is_captured_for_publishing(traces: Traces) -> None:
    assert traces.capture() == {}
    with traces.handling("outbox", item({})):
        assert traces.capture()["traceparent"].startswith("00-")


def test_without_opentelemetry_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.import_module

    def without(name: str, package: str | None = None) -> Any:
        if name.startswith("opentelemetry"):
            raise ModuleNotFoundError(name)
        return real(name, package)

    monkeypatch.setattr(importlib, "import_module", without)
    monkeypatch.setattr(traces_module, "_opentelemetry", traces_module._opentelemetry.__wrapped__)
    traces = Traces()
    assert not traces.active
    with traces.handling("outbox", item({"traceparent": PARENT})) as span:
        span.end(DONE)
    assert traces.capture() == {}


def test_opentelemetry_that_nobody_set_up_costs_no_spans() -> None:
    assert not Traces().active
