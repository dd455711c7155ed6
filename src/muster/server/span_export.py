"""Sends ended spans to an exporter of OpenTelemetry, in a thread.

OpenTelemetry's own BatchSpanProcessor starts a thread in each child process that is forked, and
Linux lets only a process with one thread enter the namespaces of a node (setns(2)).
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from queue import Empty, Full, Queue
from threading import Thread

from opentelemetry.context import Context
from opentelemetry.sdk.environment_variables import (
    OTEL_BSP_MAX_EXPORT_BATCH_SIZE,
    OTEL_BSP_MAX_QUEUE_SIZE,
    OTEL_BSP_SCHEDULE_DELAY,
)
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.sdk.trace.export import SpanExporter

_log = logging.getLogger(__name__)
#: Seconds to wait for the last batch.
_SHUTDOWN_TIMEOUT = 30


class SpanExport(SpanProcessor):
    """A processor for a TracerProvider. What does not fit into its queue is dropped.

    The sizes and the delay (milliseconds) are OpenTelemetry's variables OTEL_BSP_..., with its
    defaults.
    """

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self._size = int(os.environ.get(OTEL_BSP_MAX_EXPORT_BATCH_SIZE, "512"))
        self._delay = int(os.environ.get(OTEL_BSP_SCHEDULE_DELAY, "5000")) / 1000
        #: None: the end.
        self._queue: Queue[ReadableSpan | None] = Queue(
            int(os.environ.get(OTEL_BSP_MAX_QUEUE_SIZE, "2048"))
        )
        self._thread = Thread(target=self._run, name="span-export", daemon=True)
        self._thread.start()

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """See `SpanProcessor`."""

    def on_end(self, span: ReadableSpan) -> None:
        """See `SpanProcessor`."""
        if span.context.trace_flags.sampled:
            try:
                self._queue.put_nowait(span)
            except Full:
                _log.warning("a span is dropped: %d others wait to be sent", self._queue.maxsize)

    def shutdown(self) -> None:
        """Send what is left."""
        with contextlib.suppress(Full):  # the exporter hangs
            self._queue.put(None, timeout=_SHUTDOWN_TIMEOUT)
            self._thread.join(_SHUTDOWN_TIMEOUT)
        self._exporter.shutdown()

    def _run(self) -> None:
        more = True
        while more:
            batch: list[ReadableSpan] = []
            deadline = time.monotonic() + self._delay
            while len(batch) < self._size:
                try:
                    span = self._queue.get(timeout=max(0.0, deadline - time.monotonic()))
                except Empty:
                    break
                if span is None:
                    more = False
                    break
                batch.append(span)
            if batch:
                try:
                    self._exporter.export(batch)
                except Exception:  # noqa: BLE001 (an exporter may be anybody's)
                    _log.exception("%d spans cannot be sent", len(batch))
