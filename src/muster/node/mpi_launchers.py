"""The launchers of MPI programs, MPICH's mpiexec (hydra) and Open MPI's mpirun: which one is
installed, its command line, and its message about a rank that has failed."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from shlex import quote
from typing import Dict, List, Mapping, NamedTuple, Sequence

from muster.node.requirements import missing_message
from muster.node.roster import read_roster
from muster.node.run_module import words_for

_VERSION_TIMEOUT = 60  # seconds for `--version`; the program may be on a file server

_HYDRA_WHERE = re.compile(rb"PID (\d+) RUNNING AT (\S+)")
_HYDRA_EXIT = re.compile(rb"EXIT CODE: (\d+)")
_HYDRA_SIGNAL = re.compile(rb"EXIT STRING: .*\(signal (\d+)\)")
_OPEN_MPI = re.compile(rb"with PID (\d+) on node (\S+) exited on\s+signal (\d+)")


#: The providers that libfabric may use for OFI: all except plain TCP, with which MPI_Init sometimes
#: hangs on nodes with several ranks. TCP below ofi_rxm does not.
_PROVIDERS = "cxi,efa,opx,psm2,psm3,verbs;ofi_rxm,tcp;ofi_rxm"


class NoMpi(Exception):  # noqa: N818
    """No supported MPI is installed, or it cannot be used here."""


class Launcher(NamedTuple):
    """An installed launcher."""

    #: `mpich` or `openmpi`.
    flavour: str
    #: The path of the program.
    program: str
    #: The major version of Open MPI.
    version: int
    #: The network module to use if MPICH was built with several.
    netmod: str | None = None

    @property
    def defaults(self) -> Dict[str, str]:
        """Variables for ranks, unless the run sets them. Spawned ranks have those of their node."""
        found = {}
        if self.library is not None:
            found["MPI4PY_LIBMPI"] = self.library
        if self.netmod is not None:
            found["MPIR_CVAR_CH4_NETMOD"] = self.netmod
            found["FI_PROVIDER"] = _PROVIDERS
        return found

    @property
    def library(self) -> str | None:
        """The MPI library next to the launcher, if there is one. A folder may contain those of both
        kinds, and mpi4py would load the first one it finds."""
        number = "12" if self.flavour == "mpich" else "40"
        folder = os.path.join(os.path.dirname(os.path.dirname(self.program)), "lib")
        path = os.path.join(folder, "libmpi.so." + number)
        return path if os.path.exists(path) else None


class FailedRank(NamedTuple):
    """A rank whose failure has ended the whole job."""

    #: Its node, as the launcher calls it.
    host: str
    #: Its process there.
    pid: int
    #: 128 + N if signal N ended it.
    exit_code: int


def find_failed_rank(output: bytes) -> FailedRank | None:
    """The rank that a launcher's output blames. Open MPI names the node of a rank that a signal
    ended, and not of one that exited."""
    found = _OPEN_MPI.search(output)
    if found is not None:
        return FailedRank(found[2].decode(errors="replace"), int(found[1]), 128 + int(found[3]))
    where, code = _HYDRA_WHERE.search(output), _HYDRA_EXIT.search(output)
    if where is None or code is None:
        return None
    signal = _HYDRA_SIGNAL.search(output)
    ended = int(code[1]) if signal is None else 128 + int(signal[1])
    return FailedRank(where[2].decode(errors="replace"), int(where[1]), ended & 255)


def find_launcher(flavour: str) -> Launcher:
    """The launcher on PATH: any (flavour `auto`), or that of a flavour. Raises NoMpi."""
    tried = []
    names = {"auto": ("mpiexec", "mpiexec.hydra"), "mpich": ("mpiexec.hydra", "mpiexec")}
    for name in names.get(flavour, ("mpirun", "mpiexec")):
        program = shutil.which(name)
        if program is None:
            tried.append("no %s on PATH" % name)
            continue
        try:
            text = _version(program)
        except subprocess.TimeoutExpired:
            tried.append("%s --version has not ended after %d s" % (program, _VERSION_TIMEOUT))
            continue
        found = _recognise(program, text)
        if found is not None and flavour in ("auto", found.flavour):
            return found
        first = text.strip().splitlines()[:1] or ["nothing"]
        tried.append("%s says %r" % (program, first[0]))
    library = {"auto": "MPICH or Open MPI", "mpich": "MPICH"}.get(flavour, "Open MPI")
    raise NoMpi(missing_message("mpi", library, "; ".join(tried)))


def _version(program: str) -> str:
    """What a program prints for `--version`. Raises TimeoutExpired."""
    done = subprocess.run(
        [program, "--version"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=_VERSION_TIMEOUT,
        check=False,
    )
    return (done.stdout + done.stderr).decode(errors="replace")


def _recognise(program: str, version_text: str) -> Launcher | None:
    if "HYDRA" in version_text:
        # MPICH's UCX hangs between nodes in graph topologies and in one-sided counters
        both = re.search(r"--with-device=ch4:(ucx,ofi|ofi,ucx)\b", version_text)
        return Launcher("mpich", program, 0, "ofi" if both else None)
    version = re.search(r"\(Open MPI\) (\d+)", version_text)
    return None if version is None else Launcher("openmpi", program, int(version[1]))


def hydra_command(
    launcher: Launcher, hosts: Sequence[str], per_node: int, *, rsh: str, rank: Sequence[str]
) -> List[str]:
    """The command line of MPICH's mpiexec. rsh: path of the program to call in place of rsh.

    -envnone: ranks get their own node's environment, not the main node's. Not the global -genvnone:
    it is sent to each proxy again when the program spawns ranks, and proxies refuse that.
    """
    words = [launcher.program, "-launcher", "rsh", "-launcher-exec", rsh, "-localhost", hosts[0]]
    words += ["-hosts", ",".join(hosts), "-ppn", str(per_node)]
    return [*words, "-envnone", "-n", str(per_node * len(hosts)), *rank]


def hydra_environment(ours: Mapping[str, str]) -> Dict[str, str]:
    """The environment of mpiexec: only the variables that are meant for it.

    mpiexec passes its environment to ranks that the program spawns, on any node, on top of that
    node's. It takes PWD for its working directory, so spawned ranks start where their node's
    programs do.
    """
    own = ("HYDRA_", "MPIEXEC_", "LD_LIBRARY_PATH")
    env = {name: value for name, value in ours.items() if name.startswith(own)}
    return {**env, "HYDRA_LAUNCHER_AUTOFORK": "0", "PWD": "/proc/self/cwd"}


def open_mpi_command(
    launcher: Launcher,
    hosts: Sequence[str],
    per_node: int,
    *,
    slots: int,
    ssh: str,
    interface: str | None,
    rank: Sequence[str],
) -> List[str]:
    """The command line of mpirun.

    slots: of each node; those beyond `per_node` are for ranks that the program spawns. ssh: path of
    the program to call in place of ssh. interface: the network interface through which its daemons
    connect, needed if nodes are on loopback.

    Ranks, spawned ones included, are not bound to cores: Open MPI would give each rank its own core
    and refuse to start more ranks than cores.
    """
    listed = ",".join("%s:%d" % (host, slots) for host in hosts)
    words = [launcher.program, "--host", listed, "-np", str(per_node * len(hosts)), "--map-by"]
    words += ["ppr:%d:node" % per_node, "--leave-session-attached"]
    if launcher.version >= 5:
        # with an interface given, its daemons would not find loopback
        words += ["--prtemca", "plm_ssh_agent", ssh, "--prtemca", "plm_ssh_no_tree_spawn", "1"]
        words += ["--bind-to", "none", "--prtemca", "rmaps_default_inherit", "1"]
    else:
        words += ["--mca", "plm_rsh_agent", ssh, "--mca", "plm_rsh_no_tree_spawn", "1"]
        words += ["--mca", "hwloc_base_binding_policy", "none"]
        words += ["--mca", "orte_keep_fqdn_hostnames", "1"]
        if interface is not None:
            words += ["--mca", "oob_tcp_if_include", interface]
    return [*words, *rank]


def write_ssh_program(folder: str) -> str:
    """Write the program to call in place of ssh, as Open MPI takes one word; returns its path."""
    path = os.path.join(folder, "ssh")
    with open(path, "w") as file:
        words = words_for(sys.executable, os.path.dirname(__file__), "muster.node.relay")
        file.write('#!/bin/sh\nexec %s run "$@"\n' % " ".join(map(quote, words)))
    os.chmod(path, 0o700)
    return path


def distinct_host_names(count: int) -> List[str]:
    """The host names of the nodes, by rank. Raises NoMpi if they share one: Open MPI takes daemons
    with the same host name for one daemon."""
    names = [entry["FQDN"].split(".")[0] for entry in read_roster()]
    own = socket.gethostname()
    if len(names) != count or own != names[0]:
        raise NoMpi(
            "Open MPI needs a host name for each node, and all nodes here are named %s: run where "
            "nodes have namespaces (see `muster doctor`), or use MPICH" % own
        )
    return names
