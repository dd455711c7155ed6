"""What nodes have used, added up from samples."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.storage.home import RunDir
from muster.storage.usage import (
    NOTHING,
    Counters,
    NodeUsage,
    add,
    grown,
    read_usage,
    write_usage,
)


def counters(cpu: float, memory: int | None = None, network: int | None = None) -> Counters:
    return Counters(cpu, memory, int(cpu) * 10, int(cpu) * 20, network, network, 1)


def test_averages_are_weighted_by_time_and_peaks_are_the_most() -> None:
    usage = add(NodeUsage(), NOTHING, counters(2.0, 100), 1.0)
    usage = add(usage, counters(2.0, 100), counters(5.0, 400), 3.0)
    assert (usage.cpu_seconds, usage.cpu_average, usage.cpu_peak) == (5.0, 1.25, 2.0)
    assert (usage.memory_average, usage.memory_peak) == (325, 400)
    assert (usage.disk_read, usage.disk_written) == (50, 100)
    assert (usage.received, usage.sent) == (None, None)


def test_gpus_are_averaged_over_the_time_in_which_they_were_measured() -> None:
    usage = add(NodeUsage(), NOTHING, counters(0.0), 5.0)
    usage = add(usage, NOTHING, NOTHING._replace(gpus=2.0, gpu_memory=10), 1.0)
    usage = add(usage, NOTHING, NOTHING._replace(gpus=1.0, gpu_memory=30), 3.0)
    assert (usage.gpu_average, usage.gpu_peak, usage.gpu_memory_peak) == (1.25, 2.0, 30)
    assert "gpu_seconds" not in usage.to_dict()


@pytest.mark.parametrize(
    ("before", "now", "more"),
    [(2, 5, 3), (5, 2, 0), (None, 4, 4), (3, None, None), (None, None, None), (1.5, 2.0, 0.5)],
)
def test_a_counter_grows_by_nothing_at_least(
    before: float | None, now: float | None, more: float | None
) -> None:
    assert grown(before, now) == more


def test_what_is_not_known_adds_nothing() -> None:
    usage = add(NodeUsage(), NOTHING, counters(2.0, 100, 7), 1.0)
    unknown = Counters(None, None, None, None, None, None, None)
    assert add(usage, counters(2.0, 100, 7), unknown, 0.0) == usage


def test_an_interval_without_memory_leaves_it_as_it_was() -> None:
    usage = add(NodeUsage(), NOTHING, counters(1.0, 100), 1.0)
    usage = add(usage, counters(1.0, 100), counters(1.0), 9.0)
    assert (usage.memory_average, usage.memory_peak, usage.seconds) == (100, 100, 10.0)


def test_a_rate_over_a_moment_is_no_peak() -> None:
    assert add(NodeUsage(), NOTHING, counters(1.0), 0.01).cpu_peak == 0.0


def test_a_node_starts_again_from_nothing() -> None:
    """Counters of a new incarnation are smaller than those of the one before."""
    usage = add(NodeUsage(), NOTHING, counters(3.0, network=70), 1.0)
    usage = add(usage, NOTHING, counters(2.0, network=50), 1.0)
    assert (usage.cpu_seconds, usage.received) == (5.0, 120)


@given(st.lists(st.tuples(st.floats(0, 1e6), st.integers(0, 2**40)), min_size=1))
def test_it_does_not_matter_how_often_samples_are_taken(found: list[tuple[float, int]]) -> None:
    steps = [NOTHING, *(counters(cpu, 1, size) for cpu, size in sorted(found))]
    totals = [max(step.received or 0 for step in steps[: i + 1]) for i in range(len(steps))]
    steps = [NOTHING, *(counters(s.cpu, 1, t) for s, t in zip(steps[1:], totals[1:], strict=True))]
    usage = NodeUsage()
    for before, now in pairwise(steps):
        usage = add(usage, before, now, 1.0)
    whole = add(NodeUsage(), NOTHING, steps[-1], len(steps) - 1.0)
    assert usage.cpu_seconds == pytest.approx(whole.cpu_seconds)
    assert (usage.disk_read, usage.received) == (whole.disk_read, whole.received)
    assert usage.cpu_peak >= whole.cpu_peak or usage.cpu_peak == pytest.approx(whole.cpu_peak)


def test_the_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    folder = RunDir(tmp_path)
    assert read_usage(folder) == {}
    recorded = {0: NodeUsage(1.5, 2.0, 1.0, 100, 200, 3, 4), 7: NodeUsage(received=1, sent=2)}
    write_usage(folder, recorded)
    assert read_usage(folder) == recorded
    folder.usage.write_text("{")
    assert read_usage(folder) == {}
