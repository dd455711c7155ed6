"""Heartbeats, the detection of failed nodes, and of a second main node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from muster.bootstrap.heartbeats import FailureDetector, Heartbeat, LeaderConflict
from muster.bootstrap.workdir import HEARTBEAT, WorkDir
from muster.errors import EngineError


def content(number: int, cluster: str = "ours") -> dict[str, Any]:
    return {"cluster": cluster, "number": number}


def failed_at(detector: FailureDetector, read: list[Any], start: int, step: int = 1) -> int | None:
    """The second at which the node has failed; `read` has a heartbeat every `step` seconds."""
    for count, heartbeat in enumerate(read):
        if detector.has_failed(heartbeat, float(start + count * step)):
            return start + count * step
    return None


def test_a_node_has_failed_after_six_missed_heartbeats() -> None:
    detector = FailureDetector("ours", 0.1)
    assert failed_at(detector, [content(n // 5) for n in range(100)], 0) is None
    assert failed_at(detector, [content(19)] * 100, 100) == 95 + 31
    assert failed_at(FailureDetector("ours", 0.1), [None] * 100, 0) == 31


def test_heartbeats_of_another_cluster_do_not_count() -> None:
    detector = FailureDetector("ours", 0.1)
    assert failed_at(detector, [content(n) for n in range(10)], 0) is None
    assert failed_at(detector, [content(n, "another") for n in range(100)], 10) == 9 + 31


def test_time_without_reads_does_not_count() -> None:
    detector = FailureDetector("ours", 0.1)
    assert failed_at(detector, [content(1)] * 10, 0) is None
    assert not detector.has_failed(content(1), 1000.0)  # both processes were paused
    assert not detector.has_failed(content(2), 1001.0)
    assert failed_at(detector, [content(2)] * 100, 1002) == 1001 + 31


def test_rare_reads_detect_a_failure_as_well() -> None:
    assert failed_at(FailureDetector("ours", 20.0), [None] * 100, 0, step=20) == 7 * 20


def test_a_second_cluster_does_not_overwrite_heartbeats(workdir: WorkDir) -> None:
    first = Heartbeat(workdir, HEARTBEAT, "first")
    first.send()
    with pytest.raises(LeaderConflict, match="another main node uses"):
        Heartbeat(workdir, HEARTBEAT, "second").send()
    assert workdir.read(HEARTBEAT) == content(1, "first")
    Heartbeat(workdir, HEARTBEAT, "second", replaces="first").send()
    assert workdir.read(HEARTBEAT) == content(1, "second")


def test_a_heartbeat_that_failed_is_repeated_at_once(workdir: WorkDir, tmp_path: Path) -> None:
    heartbeat = Heartbeat(workdir, HEARTBEAT, "ours")
    (tmp_path / "job").rename(tmp_path / "elsewhere")
    with pytest.raises(EngineError):
        heartbeat.send()
    (tmp_path / "elsewhere").rename(tmp_path / "job")
    heartbeat.send()
    assert workdir.read(HEARTBEAT) == content(1)
