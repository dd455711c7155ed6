"""What is read of pods whose JobSet is as its user wrote it."""

from __future__ import annotations

from engines.kubernetes.observed_pods import manifest
from muster.engines.kubernetes.endings import End
from muster.engines.kubernetes.observed_facts import observed_pod
from muster.lifecycle.status import Reason

R = Reason


def test_the_pod_ends_with_its_phase_and_not_with_its_main_container() -> None:
    found = manifest("a", phase="Running")
    ended = {"terminated": {"exitCode": 1, "finishedAt": "2026-01-02T03:04:05Z"}}
    found["status"]["containerStatuses"] = [{"name": "main", "state": ended}]
    assert observed_pod(found, "r1", {"w": "main"}).end is None


def test_a_container_besides_the_main_one_may_have_failed_first() -> None:
    found = manifest("a", phase="Failed")
    found["status"]["containerStatuses"] = [
        {
            "name": "main",
            "state": {"terminated": {"exitCode": 0, "finishedAt": "2026-01-02T03:04:09Z"}},
        },
        {
            "name": "log",
            "state": {"terminated": {"exitCode": 7, "finishedAt": "2026-01-02T03:04:05Z"}},
        },
    ]
    seen = observed_pod(found, "r1", {"w": "main"})
    assert seen.end == End(R.EXIT, "container log of pod a on m1 has exited with code 7")
    assert seen.exit_code == 7
    assert (seen.container, seen.jobset_uid, seen.run) == ("main", "js", "r1")


def test_memory_that_was_used_up_is_the_reason() -> None:
    found = manifest("a", phase="Failed")
    found["spec"]["containers"][0]["resources"] = {"limits": {"memory": "1Gi"}}
    found["status"]["containerStatuses"] = [
        {"name": "main", "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}
    ]
    seen = observed_pod(found, "r1", {})
    assert seen.end == End(R.OUT_OF_MEMORY, "pod a on m1 ran out of memory: its limit is 1Gi")


def test_a_container_named_node_is_one_of_others() -> None:
    found = manifest("a", phase="Running")
    found["spec"]["containers"] = [{"name": "main"}, {"name": "node"}]
    running = {"running": {"startedAt": "2026-01-02T03:04:05Z"}}
    found["status"]["containerStatuses"] = [
        {"name": "main", "state": {"waiting": {"reason": "ContainerCreating"}}},
        {"name": "node", "state": running},
    ]
    assert not observed_pod(found, "r1", {"w": "main"}).runs
