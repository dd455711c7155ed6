"""Spans of requests for OpenTelemetry, if the environment configures an exporter.

The variables are OpenTelemetry's own: OTEL_EXPORTER_OTLP_ENDPOINT (or ..._TRACES_ENDPOINT) turns
tracing on, OTEL_SERVICE_NAME and the others apply. Without them nothing is imported.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Protocol

from muster.errors import InvalidInput, Problem

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
#: Headers of a request that name the span of the client (W3C Trace Context).
_CONTEXT = ("traceparent", "tracestate")


class Span(Protocol):
    """A request that is traced."""

    def end(self, route: str, status: int, user: str) -> None:
        """The request was answered."""
        ...


class Tracer(Protocol):
    """Makes spans."""

    def request(self, verb: str, headers: Mapping[bytes, bytes], request_id: str) -> Span:
        """A request has begun."""
        ...

    def close(self) -> None:
        """Send what is left."""
        ...


class _NoSpan:
    def end(self, route: str, status: int, user: str) -> None:
        pass


class NoTracer:
    """Traces nothing."""

    _span = _NoSpan()

    def request(self, verb: str, headers: Mapping[bytes, bytes], request_id: str) -> Span:
        """See `Tracer`."""
        return self._span

    def close(self) -> None:
        """See `Tracer`."""


def make_tracer(environ: Mapping[str, str] = os.environ) -> Tracer:
    """The tracer that the environment configures. Raises InvalidInput if OpenTelemetry is not
    installed."""
    if not any(environ.get(name) for name in _ENDPOINTS):
        return NoTracer()
    try:
        return OpenTelemetry()
    except ModuleNotFoundError as error:
        text = f"tracing is configured, and {error.name} is not installed"
        hint = "pip install 'muster-jobs[otel]', or unset the variable"
        raise InvalidInput(Problem(_ENDPOINTS[0], text, hint)) from None


class OpenTelemetry:
    """Sends spans to the exporter that the environment names."""

    def __init__(self) -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        from muster.server.span_export import SpanExport

        # the variable OTEL_SERVICE_NAME comes first
        name = os.environ.get("OTEL_SERVICE_NAME", "muster-server")
        self._provider = TracerProvider(resource=Resource.create({"service.name": name}))
        self._provider.add_span_processor(SpanExport(OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("muster.server")
        self._contexts = TraceContextTextMapPropagator()

    def request(self, verb: str, headers: Mapping[bytes, bytes], request_id: str) -> Span:
        """See `Tracer`."""
        from opentelemetry.trace import SpanKind

        carrier = {
            name: headers[name.encode()].decode("latin-1")
            for name in _CONTEXT
            if name.encode() in headers
        }
        span = self._tracer.start_span(
            verb,
            context=self._contexts.extract(carrier),
            kind=SpanKind.SERVER,
            attributes={"http.request.method": verb, "muster.request": request_id},
        )
        return _Span(verb, span)

    def close(self) -> None:
        """See `Tracer`."""
        self._provider.shutdown()


class _Span:
    def __init__(self, verb: str, span: Any) -> None:
        self._verb, self._span = verb, span

    def end(self, route: str, status: int, user: str) -> None:
        """See `Span`."""
        from opentelemetry.trace import StatusCode

        if route:
            self._span.update_name(f"{self._verb} {route}")
            self._span.set_attribute("http.route", route)
        self._span.set_attribute("http.response.status_code", status)
        if user:
            self._span.set_attribute("enduser.id", user)
        if status >= 500:
            self._span.set_status(StatusCode.ERROR)
        self._span.end()
