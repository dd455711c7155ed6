"""What the metrics API says of a pod."""

from __future__ import annotations

from typing import Any

import pytest

from muster.engines.kubernetes.pod_usage import PodUsage, pod_usage


def metrics(*used: Any, **more: Any) -> dict[str, Any]:
    """PodMetrics, with what each container uses."""
    return {
        "metadata": {"name": "train-w-0-0-abcde", "namespace": "default"},
        "timestamp": "2026-03-01T12:00:00Z",
        "window": "15.041s",
        "containers": [{"name": f"c{n}", "usage": one} for n, one in enumerate(used)],
        **more,
    }


@pytest.mark.parametrize(
    ("cpu", "cpus"),
    [
        ("0", 0.0),
        ("2", 2.0),
        ("250m", 0.25),
        ("12345n", 0.000012345),
        ("1500000000n", 1.5),
        ("12u", 0.000012),
        ("1.5", 1.5),
        (2, 2.0),
    ],
)
def test_cpu(cpu: object, cpus: float) -> None:
    found = pod_usage(metrics({"cpu": cpu, "memory": "1Mi"}))
    assert found is not None
    assert found.cpus == pytest.approx(cpus, rel=1e-12)


@pytest.mark.parametrize(
    ("text", "memory"),
    [
        ("0", 0),
        ("1536Ki", 1536 << 10),
        ("128974848", 128974848),
        ("3Mi", 3 << 20),
        ("1.5Gi", 3 << 29),
        ("129e6", 129_000_000),
        ("129M", 129_000_000),
        ("1500m", 1),  # as the API writes half a byte
    ],
)
def test_memory(text: str, memory: int) -> None:
    found = pod_usage(metrics({"cpu": "1m", "memory": text}))
    assert found is not None
    assert found.memory == memory


def test_containers_are_added_up() -> None:
    used = {"cpu": "100m", "memory": "1Mi"}, {"cpu": "23000000n", "memory": "512Ki"}
    assert pod_usage(metrics(*used)) == PodUsage(
        "train-w-0-0-abcde", 1772366400.0, 0.123, 1536 << 10
    )


@pytest.mark.parametrize("timestamp", [None, "", "yesterday", 7])
def test_a_pod_may_have_no_time(timestamp: object) -> None:
    found = pod_usage(metrics({"cpu": "1", "memory": "1Ki"}, timestamp=timestamp))
    assert found == PodUsage("train-w-0-0-abcde", None, 1.0, 1024)


@pytest.mark.parametrize(
    "found",
    [
        metrics(),
        metrics(containers=None),
        metrics({"cpu": "1"}),
        metrics({"memory": "1Mi"}),
        metrics({"cpu": "fast", "memory": "1Mi"}),
        metrics({"cpu": "-1", "memory": "1Mi"}),
        metrics({"cpu": "1", "memory": "1MiB"}),
        metrics({"cpu": "1", "memory": "1e999"}),
        metrics({"cpu": "9e9999", "memory": "1Mi"}),
        metrics({"cpu": "9" * 1_000_000, "memory": "1Mi"}),
        metrics({"cpu": True, "memory": "1Mi"}),
        metrics({"cpu": "1", "memory": "1Mi"}, None),
        metrics({"cpu": "1", "memory": "1Mi"}, metadata=None),
        metrics({"cpu": "1", "memory": "1Mi"}, metadata={}),
        {},
    ],
    ids=lambda found: repr(found)[:160],
)
def test_what_cannot_be_read_was_not_measured(found: dict[str, Any]) -> None:
    assert pod_usage(found) is None
