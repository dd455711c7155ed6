"""The agent of JobSet's in-place restart is removed from a manifest."""

from __future__ import annotations

from support.jobset_manifests import MAX, Make, Read

IN_PLACE = {
    "spec.replicatedJobs[0]": None,
    "spec.failurePolicy": {"maxRestarts": 3, "restartStrategy": "InPlaceRestart"},
    "spec.replicatedJobs[0].template.spec.backoffLimit": MAX,
    "spec.replicatedJobs[0].template.spec.podReplacementPolicy": "Failed",
}


FIRST = "spec.replicatedJobs[0].template.spec.template.spec"


def test_an_agent_that_runs_the_program_is_removed(make: Make, read: Read) -> None:
    agent = {
        "name": "in-place-restart-agent",
        "image": "<fill me in>",
        "restartPolicy": "Never",
        "restartPolicyRules": [],
        "env": [
            {"name": "JOBSET_NAME", "value": "x"},
            {"name": "MINE", "value": "1"},
            {"name": "WORKER_COMMAND", "value": "echo $MINE"},
        ],
    }
    manifest = read(make({**IN_PLACE, f"{FIRST}.containers": [agent]}))
    (group,) = manifest.spec.node_groups
    assert group.command == ("bash", "-c", "echo $MINE")
    assert group.env == {"MINE": "1"}
    assert group.image is None
    assert group.retries == 0
    assert manifest.spec.failure.strategy == "in_place"
    assert manifest.notes == (
        "JobSet's in-place restart agent is not run: Muster restarts programs in place itself",
    )


def test_an_agent_in_a_sidecar_is_removed(make: Make, read: Read) -> None:
    agent = {
        "name": "agent",
        "image": "registry/in-place-restart-agent:v1",
        "restartPolicy": "Always",
        "startupProbe": {"httpGet": {"port": 8081, "path": "/barrier-is-down"}},
    }
    again = [{"action": "RestartAllContainers"}]
    changes = {
        **IN_PLACE,
        f"{FIRST}.initContainers": [agent],
        f"{FIRST}.containers[0].restartPolicyRules": again,
    }
    (group,) = read(make(changes)).spec.node_groups
    assert group.command == ("echo", "hello")
    assert group.startup_probe is None


def test_in_place_restart_without_an_agent_is_noted(make: Make, read: Read) -> None:
    assert read(make(IN_PLACE)).notes == (
        "InPlaceRestart needs no agent here; on Kubernetes nothing restarts without one",
    )
