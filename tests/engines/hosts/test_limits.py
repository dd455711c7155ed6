"""CPUs and memory of nodes on machines over ssh."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.engines.remote.resources import describe_resources
from muster.node.control_groups import usable_limits
from muster.node.machine import count_cpus
from muster.plan.model import ResourcePlan
from support.command import muster, output_of
from support.lab import Lab, laboratory, needs_lab
from support.ssh_hosts import add_engine, needs_sshd, shared_sshd

needs_groups = pytest.mark.skipif(
    len(usable_limits()) < 2, reason="control groups are not writable here"
)

#: Prints the limits of the control groups that its process is in.
SHOW = """\
import os, re
def read(name, file):
    own = dict(line.split(":")[1:] for line in open("/proc/self/cgroup").read().splitlines())
    version = 1 if name in own else 2
    path = f"/sys/fs/cgroup/{name}" * (version == 1) or "/sys/fs/cgroup"
    return open(f"{path}{own[name if version == 1 else '']}/{file[version]}").read().split()[0]
print(read("cpu", {1: "cpu.cfs_quota_us", 2: "cpu.max"}))
print(read("memory", {1: "memory.limit_in_bytes", 2: "memory.max"}))
"""


def job(tmp_path: Path, text: str, program: str) -> str:
    (tmp_path / "program.py").write_text(program)
    (tmp_path / "job.yaml").write_text(f"name: limited\nartifact: program.py\n{text}\n")
    return str(tmp_path / "job.yaml")


@needs_sshd
@needs_groups
@pytest.mark.parametrize(
    ("resources", "cpus", "memory"),
    [
        ("resources: {cpus: 0.5, memory: 256MiB}", "50000", 256 << 20),
        ("shape: lab", "25000", 512 << 20),
        ("shape: lab\nresources: {memory: 128MiB}", "25000", 128 << 20),
    ],
)
def test_a_node_is_limited(
    own_home: Path, tmp_path: Path, resources: str, cpus: str, memory: int
) -> None:
    (own_home / "shapes.yaml").write_text("lab: {ocpus: 1, cpus: 0.25, memory: 512MiB}\n")
    add_engine(own_home, shared_sshd())
    output = output_of("run", "--engine", "hosts", job(tmp_path, resources, SHOW))
    assert [line.split()[-1] for line in output.splitlines()] == [cpus, str(memory)]


@needs_sshd
@needs_groups
def test_a_program_that_uses_more_memory(own_home: Path, tmp_path: Path) -> None:
    add_engine(own_home, shared_sshd())
    spec = job(tmp_path, "resources: {memory: 128MiB}", "bytearray(1 << 28)")
    err = muster("run", "--engine", "hosts", spec, code=1).stderr
    assert "ran out of memory and was ended, exit code 137" in err


@needs_sshd
def test_more_than_the_machine_has(own_home: Path, tmp_path: Path) -> None:
    add_engine(own_home, shared_sshd())
    has = f"it has {count_cpus()} CPUs, and a node needs 5000 CPUs"
    spec = job(tmp_path, "resources: {cpus: 5000}", "")
    err = muster("run", "--engine", "hosts", spec, code=1).stderr
    assert f"no machine can be used; 127.0.0.1: {has}" in err


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with laboratory(tmp_path, 2) as made:
        # as if this user might not change those of the machine
        made.machines[0].run("mount", "-t", "tmpfs", "none", "/sys/fs/cgroup")
        yield made


@needs_lab
@needs_groups
def test_a_machine_without_control_groups(lab: Lab, tmp_path: Path) -> None:
    """A node that has to be limited runs on another one, or not at all."""
    first, second = lab.machines
    code, out, _ = lab.muster("engines", "check", "hosts")
    assert code == 0
    says = dict(line.removeprefix("yes ").split(": ", 1) for line in out.splitlines())
    assert "cannot limit CPUs or memory" in says[first.address]
    assert "limits CPUs and memory" in says[second.address]
    limited = ("--set", "resources.memory=128MiB", "--engine", "hosts")
    code, out, err = lab.muster("run", *limited, "--", "hostname")
    assert (code, out.split()[-1]) == (0, second.name), err
    code, _, err = lab.muster("run", "--nodes", "2", *limited, "--", "hostname")
    assert code == 1
    why = "it cannot limit the memory of nodes (no control groups that this user may change)"
    assert f"fewer can be used; {first.address}: {why}" in err
    code, out, _ = lab.muster("status", "last", "--json")
    assert {node["started_at"] for node in json.loads(out)["nodes"]} == {None}
    # without limits, it can be used
    code, out, err = lab.muster("run", "--nodes", "2", "--engine", "hosts", "--", "hostname")
    assert (code, {first.name, second.name} <= {*out.split()}) == (0, True), err


@pytest.mark.parametrize(
    ("resources", "text"),
    [
        (ResourcePlan(), ""),
        (ResourcePlan(disk=1 << 30), ""),
        (ResourcePlan(cpus=0.5), "each node has 0.5 CPUs"),
        (
            ResourcePlan(cpus=1, memory=1 << 30, gpus=1),
            "each node has 1 CPU, 1GiB of memory, 1 GPU",
        ),
        (
            ResourcePlan(cpus=8, memory=64 << 30, shape="lab"),
            "shape lab: each node has 8 CPUs, 64GiB of memory, or what its machine has",
        ),
        (ResourcePlan(shape="local"), "shape local: each node has what its machine has"),
    ],
)
def test_what_nodes_have_in_words(resources: ResourcePlan, text: str) -> None:
    assert describe_resources(resources) == text
