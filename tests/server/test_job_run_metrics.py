"""What job runs use, as metrics."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest

from muster.node.counters import Counters
from muster.server.job_run_metrics import NAMESPACE, JobRunMetrics, Node, values
from muster.server.log import ServerLog
from support.faults import until
from support.oci_teams import VISION, OciTeams, oci_teams

GIB = 1 << 30
NODE = Node("workers", cpus=2.0, memory=4 * GIB, gpus=2)
BEFORE = Counters(10.0, GIB, 1000, 2000, 300, 400, 1)


@pytest.fixture(scope="module")
def oci() -> Iterator[OciTeams]:
    with oci_teams() as made:
        yield made


def sampled(node: Node, now: Counters) -> dict[str, float]:
    return dict(values(node, now, 105.0))


def test_the_first_sample_has_no_rates() -> None:
    assert sampled(NODE, BEFORE) == {"MemoryUtilization": 25.0}


def test_rates_are_those_since_the_last_sample() -> None:
    node = Node("workers", 2.0, 4 * GIB, 2, BEFORE, 100.0)
    now = Counters(15.0, 2 * GIB, 1500, 2000, 350, 404, 1, gpus=0.5, gpu_memory=7)
    assert sampled(node, now) == {
        "CpuUtilization": 50.0,
        "MemoryUtilization": 50.0,
        "GpuUtilization": 25.0,
        "GpuMemoryBytes": 7.0,
        "DiskBytesRead": 500.0,
        "DiskBytesWritten": 0.0,
        "NetworkBytesIn": 50.0,
        "NetworkBytesOut": 4.0,
    }


def test_a_node_that_was_restarted_begins_anew() -> None:
    node = Node("workers", 2.0, 4 * GIB, 2, BEFORE, 100.0)
    assert set(sampled(node, Counters(0.5, None, 0, 0, None, None, 1))) == set()


def test_a_job_run_in_progress_has_metrics(oci: OciTeams) -> None:
    from oci.monitoring import MonitoringClient, models

    client, run = oci.run_job("data = b'x' * (50 << 20)\nwhile True: pass")
    recorder = JobRunMetrics(oci.teams.backend, ServerLog(io.StringIO()))
    monitoring = oci.client(MonitoringClient, "vera")

    def values_of(name: str) -> list[float]:
        query = f'{name}[1m]{{resourceId = "{run}"}}.max()'
        details = models.SummarizeMetricsDataDetails(namespace=NAMESPACE, query=query)
        found = monitoring.summarize_metrics_data(VISION, details).data
        return [point.value for one in found for point in one.aggregated_datapoints]

    def busy() -> bool:
        recorder.look()
        memory = max(values_of("MemoryUtilization"), default=0.0)
        return any(values_of("CpuUtilization")) and memory > 4.0  # 50 MiB of 1 GiB

    until(busy, "it has used a CPU and memory")
    client.cancel_job_run(run)
    until(lambda: client.get_job_run(run).data.lifecycle_state == "CANCELED", "it is canceled")
    recorder.look()
    assert recorder.followed == frozenset()


def test_one_server_of_a_host_samples(oci: OciTeams) -> None:
    # the server of this test does
    other = JobRunMetrics(oci.teams.backend, ServerLog(io.StringIO()))
    until(lambda: not other._is_only(), "the server samples")
    other.stop()


def test_other_runs_have_none(oci: OciTeams) -> None:
    from support.api_runs import start

    api = oci.teams.api("anouk")
    run = start(api, "sleep 600")
    recorder = JobRunMetrics(oci.teams.backend, ServerLog(io.StringIO()))
    until(lambda: api.run(run.id).state == "IN_PROGRESS", "it runs")
    recorder.look()
    assert run.id not in recorder.followed
