"""Spans of requests, as a collector of OpenTelemetry receives them."""

from __future__ import annotations

import gzip
import os
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from muster.client.http.api import HttpAPI
from muster.errors import InvalidInput, NotFound
from muster.server import tracing
from muster.service.backend import Backend
from muster.storage.home import Home
from support.server_thread import running_server

TRACE = "0af7651916cd43dd8448eb211c80319c"


class Collector:
    """What a collector that listens on the loopback interface has received."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                request = ExportTraceServiceRequest.FromString(body)
                for resource in request.resource_spans:
                    for scope in resource.scope_spans:
                        collector.spans += scope.spans
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    made = Collector()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", made.url)
    yield made
    made.close()


def test_each_request_is_a_span_within_that_of_its_client(
    collector: Collector, own_home: Path
) -> None:
    with running_server(Backend(Home(own_home))) as server:
        api = HttpAPI(server.address())
        api.jobs()
        with pytest.raises(NotFound):
            api.job("secret-name")
        parent = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}
        api.connection.request("GET", "/v1/caller", headers=parent)
        api.close()
    # the server sends the rest when it stops
    spans = {span.name: span for span in collector.spans}
    assert {*spans} == {"GET /jobs", "GET /jobs/{text}", "GET /caller"}
    attributes = {one.key: one.value for one in spans["GET /jobs/{text}"].attributes}
    assert attributes["http.response.status_code"].int_value == 404
    assert spans["GET /caller"].trace_id.hex() == TRACE
    assert "secret-name" not in str(collector.spans)


def test_a_forked_child_soon_has_one_thread(collector: Collector) -> None:
    """Linux lets no other process enter a node (`engines.local.entry`): `exec` would fail on a
    server that is traced. OpenTelemetry itself starts threads there for a moment."""
    tracer = tracing.make_tracer()
    pid = os.fork()
    if pid == 0:
        deadline = time.monotonic() + 60
        while len(os.listdir("/proc/self/task")) > 1 and time.monotonic() < deadline:
            time.sleep(0.001)
        os._exit(len(os.listdir("/proc/self/task")))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1
    tracer.close()


def test_nothing_is_traced_unless_it_is_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(tracing.make_tracer({}), tracing.NoTracer)


def test_tracing_without_the_package_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> tracing.Tracer:
        raise ModuleNotFoundError("No module named 'opentelemetry'", name="opentelemetry")

    monkeypatch.setattr(tracing, "OpenTelemetry", missing)
    with pytest.raises(InvalidInput, match="opentelemetry is not installed"):
        tracing.make_tracer({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"})
