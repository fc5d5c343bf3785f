"""Traces of handled items, when OpenTelemetry is installed (extra `otel`); inert otherwise.

An item carries the W3C trace context of whoever published it in its headers. Handling it is a trace
of its own that *links* to that one: hours may lie between, and each retry links to the first.
"""

import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache, cached_property
from typing import Any, Protocol

from penstock.kernel.queue import Item
from penstock.kernel.verdict import Done, Reject, Retry, Unknown, Verdict

TRACE_HEADERS = ("traceparent", "tracestate")


class Handling(Protocol):
    """An open span around one handler."""

    def end(self, verdict: Verdict) -> None:
        """Say what came of it, before the span closes."""
        ...


class _Inert:
    """Stands in where there is nothing to trace with."""

    def end(self, verdict: Verdict) -> None:
        """Do nothing."""


class _Span:
    """Adds the verdict to a span of OpenTelemetry."""

    def __init__(self, span: Any, trace: Any) -> None:
        self._span = span
        self._trace = trace

    def end(self, verdict: Verdict) -> None:
        """Set verdict and code; a reject or an unknown outcome marks the span as an error."""
        self._span.set_attribute("penstock.verdict", type(verdict).__name__.lower())
        match verdict:
            case Reject(code=code) | Retry(code=code):
                self._span.set_attribute("penstock.code", code)
            case Done() | Unknown():
                pass
        if isinstance(verdict, Reject | Unknown):
            self._span.set_status(self._trace.StatusCode.ERROR)


class Traces:
    """Opens spans; where nobody set up OpenTelemetry it costs one look-up per item."""

    def __init__(self, provider: Any = None) -> None:
        self._trace = _opentelemetry()
        self._provider = provider

    @cached_property
    def active(self) -> bool:
        """Whether spans go anywhere: OpenTelemetry is installed and somebody has set it up."""
        if self._trace is None:
            return False
        if self._provider is not None:
            return True
        return not isinstance(self._trace.get_tracer_provider(), self._trace.ProxyTracerProvider)

    @cached_property
    def _tracer(self) -> Any:
        return self._trace.get_tracer("penstock", tracer_provider=self._provider)

    @contextmanager
    def handling(self, queue: str, item: Item) -> Iterator[Handling]:
        """A span around the handler of one item, linked to the trace that published it."""
        if not self.active:
            yield _Inert()
            return
        with self._tracer.start_as_current_span(
            f"{queue} handle",
            kind=self._trace.SpanKind.CONSUMER,
            links=self._links(item.headers),
            attributes={
                "messaging.system": "penstock",
                "messaging.destination.name": queue,
                "messaging.message.id": str(item.id),
                "penstock.topic": item.topic,
                "penstock.attempt": item.attempt,
            },
            # The text of an exception may quote a payload; the type alone goes out.
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield _Span(span, self._trace)
            except BaseException as error:
                span.set_attribute("error.type", type(error).__name__)
                span.set_status(self._trace.StatusCode.ERROR)
                raise

    def _links(self, headers: Mapping[str, str]) -> list[Any]:
        if "traceparent" not in headers:
            return []
        carrier = {name: headers[name] for name in TRACE_HEADERS if name in headers}
        context = _propagator().extract(carrier)
        origin = self._trace.get_current_span(context).get_span_context()
        return [self._trace.Link(origin)] if origin.is_valid else []

    def capture(self) -> dict[str, str]:
        """The headers of the current trace, to be stored with an item that is published now."""
        carrier: dict[str, str] = {}
        if self._trace is not None:
            _propagator().inject(carrier)
        return carrier


# Kept, because looking for a module that is not there goes through the whole search path.
@cache
def _opentelemetry() -> Any:
    try:
        return importlib.import_module("opentelemetry.trace")
    except ModuleNotFoundError:
        return None


@cache
def _propagator() -> Any:
    module = importlib.import_module("opentelemetry.trace.propagation.tracecontext")
    return module.TraceContextTextMapPropagator()
