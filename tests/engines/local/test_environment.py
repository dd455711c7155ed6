"""A process gets the variables that `muster explain` shows, whatever the job sets."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from muster.client.client import Client
from muster.describe.environment import explained_environment, overridden
from muster.plan.environment import Origin
from muster.spec.reader import spec_from_mapping
from support.embedded import embedded

#: Variables of every layer, and the values that the job sets.
OWN = {
    "A": "mine",
    "CLUSTER_NODES_METADATA_FILE": "/mine",
    "FQDN": "mine",
    "HOME": "/mine",
    "HOSTNAME": "mine",
    "JOB_OCID": "mine",
    "JR_SOCKET_IFNAME": "mine",
    "MASTER_ADDR": "mine",
    "MUSTER_ATTEMPT": "77",
    "MUSTER_MOUNT_DATA": "/mine",
    "MUSTER_OUTPUTS": "/mine",
    "MUSTER_TOKEN": "mine",
    "NODE_RANK": "77",
    "OMP_NUM_THREADS": "77",
    "PATH": "/mine:/usr/bin:/bin",
    "PYTHONPATH": "/mine",
    "PYTHONUNBUFFERED": "77",
    "RANK": "77",
    "TMPDIR": "/mine",
    "TORCHELASTIC_ERROR_FILE": "/mine",
}


@pytest.mark.parametrize("level", ["namespaces", "plain"])
@pytest.mark.parametrize("framework", ["generic", "pytorch"])
@pytest.mark.parametrize("choice", range(2))
def test_a_process_gets_the_explained_environment(
    client: Client,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rng: random.Random,
    level: str,
    framework: str,
    choice: int,
) -> None:
    if level == "plain":
        monkeypatch.setenv("MUSTER_ISOLATION", "plain")
    chosen = rng.sample(sorted(OWN), 14)
    env, node_env = chosen[:9], chosen[9:]
    group = {
        "name": "g",
        "command": ["/bin/sh", "-c", "exec /usr/bin/env -0 > $SEEN"],
        "env": {name: OWN[name] for name in env} | {"SEEN": str(tmp_path / "seen")},
        "node_env": {name: f"{OWN[name]}${{rank}}" for name in node_env},
    }
    (tmp_path / "data").mkdir()
    mount = {"source": str(tmp_path / "data"), "path": "/mnt/data"}
    spec = {"name": "demo", "framework": framework, "node_groups": [group], "mounts": [mount]}
    job = embedded(client).prepare_job(spec_from_mapping(spec))
    prepared = client.prepare_run(job.record, new_job=job.new)
    (planned,) = prepared.plan.groups
    explained = explained_environment(
        prepared.plan, planned, lambda template: template.replace("${rank}", "0")
    )
    assert client.start(prepared).wait(240).state == "SUCCEEDED"

    seen = dict(line.split("=", 1) for line in (tmp_path / "seen").read_text().split("\0") if line)
    for name, setting in explained.items():
        own = planned.env.get(name, planned.node_env.get(name, "").replace("${rank}", "0"))
        moved = level == "plain" and name.startswith("MUSTER_MOUNT_")
        if moved or "(" in setting.value or "${" in setting.value:  # known at the start
            assert seen[name] != own, name
        else:
            assert seen[name] == setting.value, name
        if setting.origin in (Origin.ENV, Origin.NODE_ENV):
            assert seen[name] == own, name
    given = {**planned.env, **planned.node_env}
    changed = {name for name in chosen if seen[name] != given[name].replace("${rank}", "0")}
    assert changed == set(overridden(prepared.plan, planned))
