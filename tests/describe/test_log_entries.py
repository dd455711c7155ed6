from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from muster.describe.log_entries import PER_SECOND, LogEntries

Entry = tuple[float, str, Mapping[str, Any]]


def texts(entries: list[Entry], *arrays: range) -> list[str]:
    shown = LogEntries(lambda: arrays)
    return [text for entry in entries for text in shown.texts(*entry)]


def failure(time: float, rank: int) -> Entry:
    return time, "failure", {"rank": rank, "group": "w", "reason": "exit", "exit_code": 7}


def test_the_replicas_of_an_array_start_and_end_without_messages() -> None:
    entries: list[Entry] = [
        (1.0, "run", {"state": "IN_PROGRESS"}),
        (1.0, "nodes", {"ranks": "0-3", "state": "STARTING"}),
        (1.5, "nodes", {"ranks": "2,3", "state": "READY"}),
        (2.0, "restart", {"what": "node-2", "restart": 1, "why": "x"}),
        (2.0, "restart", {"what": "replica 1 of group w", "restart": 2, "why": "x"}),
        (3.0, "restart", {"what": "the run", "restart": 3, "why": "x"}),
        (3.0, "nodes", {"ranks": "100", "state": "STARTING"}),
    ]
    assert texts(entries, range(100)) == [
        "the run is in progress",
        "restart 3 of the run: x",
        "node 100 is starting",
    ]
    assert len(texts(entries)) == len(entries), "a run without an array has a message for each"


def test_some_failures_of_each_second_are_told_and_the_others_counted() -> None:
    entries = [failure(1.0 + number / 1000, number) for number in range(50)]
    entries += [failure(2.5, 60), (3.0, "run", {"state": "FAILED"})]
    shown = texts(entries, range(100))
    told = [f"node-{rank} (group w) failed with exit code 7, reason exit" for rank in range(61)]
    hidden = 50 - PER_SECOND
    assert shown == [
        *told[:PER_SECOND],
        f"{hidden} more failures of replicas",
        told[60],
        "the run failed",
    ]


def test_failures_that_were_not_told_are_counted_at_the_end() -> None:
    entries = [failure(1.0, number) for number in range(PER_SECOND + 1)]
    entries += [(1.0, "run", {"state": "CANCELED", "details": "canceled by user"})]
    shown = texts(entries, range(100))
    assert shown[PER_SECOND:] == ["1 more failure of replicas", "the run was canceled by user"]
