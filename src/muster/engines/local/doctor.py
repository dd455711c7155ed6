"""What this machine can do for local runs, found by trying it."""

from __future__ import annotations

import os
import shutil
import sys

from muster.engines.findings import Finding
from muster.engines.local import namespaces, node_folders
from muster.engines.local.network import addresses, bridge, uplink
from muster.engines.machine import this_machine
from muster.node import control_groups
from muster.spec.quantities import format_size


def examine() -> list[Finding]:
    """Try everything a run may use. Leaves nothing behind."""
    machine = this_machine()
    memory = format_size(machine.memory)
    return [
        Finding("machine", True, f"{machine.cpus} CPUs, {memory}, {machine.gpus} GPUs"),
        Finding("python", True, f"{sys.executable} {sys.version.split()[0]} runs python jobs"),
        _namespaces(),
        _isolated_network(),
        cluster_network(),
        _limits(),
        _disk(),
        _node_names(),
        *_programs(),
    ]


def _namespaces() -> Finding:
    reason = namespaces.probe()
    name = "guaranteed kill"
    if not reason:
        how = "as root" if os.geteuid() == 0 else "through an unprivileged user namespace"
        says = f"PID and mount namespaces work {how}: no process outlives its run"
        return Finding(name, True, says)
    says = f"{reason}; runs are plain processes, ended by process group and subreaper"
    return Finding(name, False, says, namespaces.advice())


def _isolated_network() -> Finding:
    name = "network: isolated"
    missing = bridge.isolated_unavailable()
    if missing is not None:
        return Finding(name, False, *missing)
    return Finding(name, True, "each node can have its own interface and ports")


def cluster_network() -> Finding:
    """Whether nodes can have their own interfaces and reach the internet."""
    name = "network: cluster"
    missing = bridge.cluster_unavailable()
    if missing is not None:
        return Finding(name, False, *missing)
    program = uplink.find_program()
    carrier = program.name if program is not None else ""
    message = f"each node can have its own interface, and reach the internet through {carrier}"
    return Finding(name, True, message)


def _limits() -> Finding:
    found = control_groups.hierarchies()
    name = "CPU and memory limits"
    if len(found) == 2:
        versions = "/".join(sorted({f"v{h.version}" for h in found.values()}))
        return Finding(name, True, f"control groups ({versions}) are writable")
    missing = " and ".join(sorted({"cpu", "memory"} - set(found)))
    advice = "run as root, or with systemd: systemd-run --user --scope -p Delegate=yes muster ..."
    return Finding(name, False, f"no writable control group for {missing}", advice)


def _disk() -> Finding:
    name, measured = "disk limits", "resources.disk is measured, and excess is reported"
    missing = node_folders.disk_image_unavailable()
    if missing is None:
        return Finding(name, True, f"{measured}; disk_image enforces it")
    reason, advice = missing
    return Finding(name, False, f"{measured}; disk_image is not possible: {reason}", advice)


def _node_names() -> Finding:
    name = "node names"
    if not namespaces.probe() and addresses.HOSTS.exists():
        return Finding(name, True, "node-0, node-1, ... resolve on every node of a run")
    if addresses.wrapper():
        return Finding(name, True, "node names resolve through libnss-wrapper")
    advice = "apt-get install libnss-wrapper (until then use addresses, which always work)"
    return Finding(name, False, "node names do not resolve", advice)


def _programs() -> list[Finding]:
    programs = (
        ("java", "JAR and class files", "apt-get install default-jre-headless"),
        ("mount.nfs", "NFS mounts", "apt-get install nfs-common"),
    )
    findings = []
    for program, use, advice in programs:
        found = shutil.which(program, path=os.environ.get("PATH", "") + ":/sbin:/usr/sbin")
        says = f"{program} is {'at ' + found if found else 'not installed'}"
        findings.append(Finding(use, found is not None, says, "" if found else advice))
    return findings
