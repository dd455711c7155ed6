"""The events with which sessions report how nodes ended."""

from __future__ import annotations

import signal

from msgspec.structs import replace

from muster.lifecycle.events import NodeEnded
from muster.lifecycle.status import NodeRef, Reason
from muster.node.messages import ExitReport


def node_ended(ref: NodeRef, report: ExitReport) -> NodeEnded:
    """The end of an incarnation. Raises ValueError if the report has an unknown reason."""
    return NodeEnded(
        ref.rank,
        report.exit_code,
        report.signal,
        Reason(report.reason),
        report.message,
        ref.incarnation,
        report.raised_at,
        report.metrics,
    )


def not_started(ref: NodeRef, message: str, *, final: bool = False) -> NodeEnded:
    """The end of an incarnation for which no node could be started. final: see `NodeEnded`."""
    return replace(node_ended(ref, failed_to_start(message)), final=final)


def canceled_start(ref: NodeRef) -> NodeEnded:
    """The end of an incarnation that was stopped before its node was started."""
    return node_ended(ref, ended_before_start())


def failed_to_start(message: str) -> ExitReport:
    """The exit report of a node that could not be started. message: may name files whose names
    are no text."""
    text = message.encode(errors="backslashreplace").decode()
    return ExitReport(None, 0, Reason.NOT_STARTED, text)


def ended_before_start() -> ExitReport:
    """The exit report of a node that was stopped before its program started."""
    return ExitReport(128 + signal.SIGTERM, int(signal.SIGTERM), Reason.EXIT)
