"""What starts the ranks of an MPI program: MPICH's hydra, and Open MPI's mpirun. Which of them is
there, the words each wants, and what it says of a rank that has ended the job."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from shlex import quote
from typing import Dict, List, Mapping, NamedTuple, Sequence

from muster.node.errand import WRAPPER
from muster.node.errands import roster
from muster.node.needs import sentence

#: Each rank writes where its node writes, and starts where the node's programs start: what starts
#: it would have it write on the main node, in whose working directory it would start. Its end is
#: told to us, too: launchers may hang on it, or take it for a success. Signals are for the program.
_RANK = (
    'unset MUSTER_TOKEN; cd "${MUSTER_NODE_WORK:-.}" || exit; trap : TERM USR1 USR2; '
    'rank="${PMI_RANK:-$OMPI_COMM_WORLD_RANK}"; echo "$rank began $$" >"$MUSTER_RANK_ENDS"; '
    '"$@" >>"${MUSTER_NODE_STDOUT:-/dev/stdout}" 2>>"${MUSTER_NODE_STDERR:-/dev/stderr}"; code=$?; '
    'echo "$rank ended $code" >"$MUSTER_RANK_ENDS"; exit $code'
)


_ANSWERS_WITHIN = 60  # seconds; it may be on a file server

_HYDRA_WHERE = re.compile(rb"PID (\d+) RUNNING AT (\S+)")
_HYDRA_CODE = re.compile(rb"EXIT CODE: (\d+)")
_HYDRA_SIGNAL = re.compile(rb"EXIT STRING: .*\(signal (\d+)\)")
_OPEN_MPI = re.compile(rb"with PID (\d+) on node (\S+) exited on\s+signal (\d+)")


#: What libfabric may use for OFI: all but its TCP by itself, with which MPI_Init now and then hangs
#: where a node has several ranks. TCP below ofi_rxm does the same work without.
_PROVIDERS = "cxi,efa,opx,psm2,psm3,verbs;ofi_rxm,tcp;ofi_rxm"


class NoMpi(Exception):  # noqa: N818
    """There is no MPI here that we can start ranks with."""


class Launcher(NamedTuple):
    """flavour: `mpich` or `openmpi`. version: of the latter, the first number. netmod: of the
    former, how nodes had best talk where it has been built for several ways."""

    flavour: str
    program: str
    version: int
    netmod: str | None = None

    @property
    def defaults(self) -> Dict[str, str]:
        """Variables for ranks, unless the run sets them; those that a program spawns have what
        their node's have."""
        found = {}
        if self.library is not None:
            found["MPI4PY_LIBMPI"] = self.library
        if self.netmod is not None:
            found["MPIR_CVAR_CH4_NETMOD"] = self.netmod
            found["FI_PROVIDER"] = _PROVIDERS
        return found

    @property
    def library(self) -> str | None:
        """The MPI library that belongs to it, where it lies beside it. A folder may have both
        kinds, and mpi4py would take the one it comes upon first."""
        number = "12" if self.flavour == "mpich" else "40"
        folder = os.path.join(os.path.dirname(os.path.dirname(self.program)), "lib")
        path = os.path.join(folder, "libmpi.so." + number)
        return path if os.path.exists(path) else None


class Died(NamedTuple):
    """A rank that has ended the whole job: where (as the launcher calls the node), its process
    there, and its exit code; a signal counts 128 and its number."""

    host: str
    pid: int
    code: int


def died_in(said: bytes) -> Died | None:
    """The rank that a launcher names, in what it has said. Open MPI names the node of one that a
    signal has ended, and not of one that has exited."""
    found = _OPEN_MPI.search(said)
    if found is not None:
        return Died(found[2].decode(errors="replace"), int(found[1]), 128 + int(found[3]))
    where, code = _HYDRA_WHERE.search(said), _HYDRA_CODE.search(said)
    if where is None or code is None:
        return None
    signal = _HYDRA_SIGNAL.search(said)
    ended = int(code[1]) if signal is None else 128 + int(signal[1])
    return Died(where[2].decode(errors="replace"), int(where[1]), ended & 255)


def find_launcher(flavour: str) -> Launcher:
    """What `mpiexec` on PATH is (flavour `auto`), or the one asked for. Raises NoMpi."""
    tried = []
    names = {"auto": ("mpiexec", "mpiexec.hydra"), "mpich": ("mpiexec.hydra", "mpiexec")}
    for name in names.get(flavour, ("mpirun", "mpiexec")):
        program = shutil.which(name)
        if program is None:
            tried.append("no %s on PATH" % name)
            continue
        try:
            said = _version(program)
        except subprocess.TimeoutExpired:
            tried.append("%s --version has not ended after %d s" % (program, _ANSWERS_WITHIN))
            continue
        found = _recognised(program, said)
        if found is not None and flavour in ("auto", found.flavour):
            return found
        first = said.strip().splitlines()[:1] or ["nothing"]
        tried.append("%s says %r" % (program, first[0]))
    wanted = {"auto": "MPICH or Open MPI", "mpich": "MPICH"}.get(flavour, "Open MPI")
    raise NoMpi(sentence("mpi", wanted, "; ".join(tried)))


def _version(program: str) -> str:
    """What a program says of itself. Raises TimeoutExpired."""
    done = subprocess.run(
        [program, "--version"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=_ANSWERS_WITHIN,
        check=False,
    )
    return (done.stdout + done.stderr).decode(errors="replace")


def _recognised(program: str, said: str) -> Launcher | None:
    if "HYDRA" in said:
        # between nodes, MPICH's UCX hangs in graph topologies and in one-sided counters
        both = re.search(r"--with-device=ch4:(ucx,ofi|ofi,ucx)\b", said)
        return Launcher("mpich", program, 0, "ofi" if both else None)
    version = re.search(r"\(Open MPI\) (\d+)", said)
    return None if version is None else Launcher("openmpi", program, int(version[1]))


def hydra_words(
    launcher: Launcher, hosts: Sequence[str], each: int, *, agent: str, rank: Sequence[str]
) -> List[str]:
    """agent: what is called in the place of rsh, by its path.

    -envnone: ranks have their own node's environment, not the main node's. The global -genvnone is
    said to each proxy once more when the program spawns ranks, and proxies refuse to hear it twice.
    """
    words = [launcher.program, "-launcher", "rsh", "-launcher-exec", agent, "-localhost", hosts[0]]
    words += ["-hosts", ",".join(hosts), "-ppn", str(each)]
    return [*words, "-envnone", "-n", str(each * len(hosts)), *rank]


def hydra_environment(ours: Mapping[str, str]) -> Dict[str, str]:
    """Of mpiexec. It gives all of it to ranks that the program spawns, on whatever node, on top of
    that node's own; so there is only what is meant for it. As it takes PWD's word for where it
    runs, they start where their node's programs do.
    """
    wanted = ("HYDRA_", "MPIEXEC_", "LD_LIBRARY_PATH")
    env = {name: value for name, value in ours.items() if name.startswith(wanted)}
    return {**env, "HYDRA_LAUNCHER_AUTOFORK": "0", "PWD": "/proc/self/cwd"}


def open_mpi_words(
    launcher: Launcher,
    hosts: Sequence[str],
    each: int,
    *,
    slots: int,
    agent: str,
    interface: str | None,
    rank: Sequence[str],
) -> List[str]:
    """slots: a node's; those that `each` leaves are for ranks that the program spawns. agent: what
    is called in the place of ssh, by its path. interface: where its daemons meet; without it they
    take what leads out of the machine, if nodes are on loopback. Spawned ranks inherit that nobody
    is bound to a core: each would have one of its own, and more ranks than cores were refused."""
    listed = ",".join("%s:%d" % (host, slots) for host in hosts)
    words = [launcher.program, "--host", listed, "-np", str(each * len(hosts)), "--map-by"]
    words += ["ppr:%d:node" % each, "--leave-session-attached"]
    if launcher.version >= 5:
        # its daemons meet where they want to: told to meet on loopback, they find no interface
        words += ["--prtemca", "plm_ssh_agent", agent, "--prtemca", "plm_ssh_no_tree_spawn", "1"]
        words += ["--bind-to", "none", "--prtemca", "rmaps_default_inherit", "1"]
    else:
        words += ["--mca", "plm_rsh_agent", agent, "--mca", "plm_rsh_no_tree_spawn", "1"]
        words += ["--mca", "hwloc_base_binding_policy", "none"]
        words += ["--mca", "orte_keep_fqdn_hostnames", "1"]
        if interface is not None:
            words += ["--mca", "oob_tcp_if_include", interface]
    return [*words, *rank]


def write_agent(folder: str) -> str:
    """A program for the place of ssh, whose name is one word; returns its path."""
    path = os.path.join(folder, "agent")
    with open(path, "w") as file:
        file.write('#!/bin/sh\nexec %s -m muster.node.relay run "$@"\n' % quote(sys.executable))
    os.chmod(path, 0o700)
    return path


def names_of_their_own(count: int) -> List[str]:
    """Of the nodes, by rank, as each calls itself: Open MPI takes daemons that are called the same
    for one, so nodes have to have names of their own. Raises NoMpi if they have not."""
    names = [entry["FQDN"].split(".")[0] for entry in roster()]
    own = socket.gethostname()
    if len(names) != count or own != names[0]:
        raise NoMpi(
            "Open MPI needs a host name for each node, and all nodes here are called %s: run where "
            "nodes have namespaces (see `muster doctor`), or use MPICH" % own
        )
    return names


def rank_words(program: Sequence[str]) -> List[str]:
    """What is started as a rank."""
    return ["/bin/sh", "-c", _RANK, WRAPPER, *_aborting(program)]


def _aborting(program: Sequence[str]) -> List[str]:
    """A Python script that uses mpi4py is run by `python -m mpi4py`: a rank that raises would
    otherwise wait, in MPI_Finalize, for the others, which wait for it."""
    words = list(program)
    if len(words) < 2 or words[1].startswith("-") or not _is_python(words[0]):
        return words
    from importlib.util import find_spec

    return [words[0], "-m", "mpi4py", *words[1:]] if find_spec("mpi4py") else words


def _is_python(word: str) -> bool:
    """Whether it is the interpreter that runs us: of another we do not know what it has."""
    path = shutil.which(word)
    return path is not None and os.path.abspath(path) == os.path.abspath(sys.executable)
