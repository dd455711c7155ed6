"""What this machine can do for local runs, found by trying it."""

from __future__ import annotations

import os
import shutil
import socket
import sys
from collections.abc import Callable

from msgspec import Struct

from muster.engines.local import cgroups, disk_image, fabric, isolation, linux, names, uplink
from muster.engines.local.machine import this_machine


class Finding(Struct, frozen=True):
    """One ability. advice: what to do for it, where it is missing."""

    name: str
    works: bool
    says: str
    advice: str = ""


def examine() -> list[Finding]:
    """Try everything a run may use. Leaves nothing behind."""
    machine = this_machine()
    memory = f"{machine.memory / 2**30:.1f} GiB"
    return [
        Finding("machine", True, f"{machine.cpus} CPUs, {memory}, {machine.gpus} GPUs"),
        Finding("python", True, f"{sys.executable} {sys.version.split()[0]} runs python jobs"),
        _namespaces(),
        _own_network(),
        cluster_network(),
        _limits(),
        _disk(),
        _names(),
        *_programs(),
    ]


def _namespaces() -> Finding:
    problem = _in_child(_try_namespaces)
    name = "guaranteed kill"
    if not problem:
        how = "as root" if os.geteuid() == 0 else "through an unprivileged user namespace"
        says = f"PID and mount namespaces work {how}: no process outlives its run"
        return Finding(name, True, says)
    says = f"{problem}; runs are plain processes, ended by process group and subreaper"
    return Finding(name, False, says, _namespace_advice())


def _namespace_advice() -> str:
    if isolation.impossible():
        return "unset MUSTER_ISOLATION" if linux.AVAILABLE else "namespaces need Linux"
    if os.path.exists("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"):
        return "sysctl kernel.apparmor_restrict_unprivileged_userns=0 (as root)"
    if os.path.exists("/proc/sys/kernel/unprivileged_userns_clone"):
        return "sysctl kernel.unprivileged_userns_clone=1 (as root)"
    return "in a container, allow user namespaces or run it with --privileged"


def _try_namespaces() -> str:
    return _enclosed(lambda: None, "/proc cannot be mounted")


def _enclosed(attempt: Callable[[], None], otherwise: str) -> str:
    """ "" if `attempt` works where a supervisor would be, else why not."""
    found = isolation.enclose()
    if not found.namespaces:
        return found.reason
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            isolation.settle()
            attempt()
            code = 0
        finally:
            os._exit(code)
    return otherwise if os.waitpid(pid, 0)[1] else ""


def _own_network() -> Finding:
    name = "network: isolated"
    problem = _in_child(_try_network)
    if not problem:
        return Finding(name, True, "each node can have an interface and ports of its own")
    if _in_child(_try_namespaces):
        return Finding(name, False, problem, _namespace_advice())
    return Finding(name, False, problem, "load the modules bridge and veth")


def cluster_network() -> Finding:
    """Whether nodes can have interfaces of their own and a way out."""
    name = "network: cluster"
    if _in_child(_try_router):
        own = _own_network()
        if not own.works:
            return Finding(name, False, own.says, own.advice)
        says = "the kernel cannot translate addresses in a network namespace"
        return Finding(name, False, says, "as root, modprobe nft_chain_nat nft_masq")
    missing = uplink.missing()
    if missing is not None:
        return Finding(name, False, *missing)
    program = uplink.find_program()
    carrier = program.name if program is not None else ""
    says = f"each node can have an interface of its own, and reach the internet through {carrier}"
    return Finding(name, True, says)


def _try_network() -> str:
    no = "no bridge can be made in a network namespace"
    return _enclosed(lambda: fabric.Fabric().close(), no)


def _try_router() -> str:
    return _enclosed(fabric.try_router, "no")


def _limits() -> Finding:
    found = cgroups.hierarchies()
    name = "CPU and memory limits"
    if len(found) == 2:
        versions = "/".join(sorted({f"v{h.version}" for h in found.values()}))
        return Finding(name, True, f"control groups ({versions}) are writable")
    missing = " and ".join(sorted({"cpu", "memory"} - set(found)))
    advice = "run as root, or with systemd: systemd-run --user --scope -p Delegate=yes muster ..."
    return Finding(name, False, f"no writable control group for {missing}", advice)


def _disk() -> Finding:
    name, said = "disk limits", "resources.disk is measured, and too much is told"
    why = disk_image.impossible()
    if why is None:
        return Finding(name, True, f"{said}; disk_image enforces it")
    return Finding(name, False, f"{said}; disk_image is not possible: {why[0]}", why[1])


def _names() -> Finding:
    name = "node names"
    if not _in_child(_try_namespaces) and names.HOSTS.exists():
        return Finding(name, True, "node-0, node-1, ... resolve on every node of a run")
    if names.wrapper():
        return Finding(name, True, "node names resolve through libnss-wrapper")
    advice = "apt-get install libnss-wrapper (until then use addresses, which always work)"
    return Finding(name, False, "node names do not resolve", advice)


def _programs() -> list[Finding]:
    wanted = (
        ("java", "JAR and class files", "apt-get install default-jre-headless"),
        ("mount.nfs", "NFS mounts", "apt-get install nfs-common"),
    )
    findings = []
    for program, use, advice in wanted:
        found = shutil.which(program, path=os.environ.get("PATH", "") + ":/sbin:/usr/sbin")
        says = f"{program} is {'at ' + found if found else 'not installed'}"
        findings.append(Finding(use, found is not None, says, "" if found else advice))
    return findings


def _in_child(attempt: Callable[[], str]) -> str:
    """What `attempt` answers, from a child that can change its own namespaces at will."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        try:
            theirs.send(attempt().encode() or b"\0")
        finally:
            os._exit(0)
    theirs.close()
    answer = ours.recv(4096)
    os.waitpid(pid, 0)
    ours.close()
    return answer.decode().strip("\0") if answer else "the attempt crashed"
