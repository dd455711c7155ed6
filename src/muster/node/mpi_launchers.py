"""What starts the ranks of an MPI program: MPICH's hydra, and Open MPI's mpirun. Which of them is
there, and the words each wants."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from shlex import quote
from typing import List, NamedTuple, Sequence

from muster.node.errands import roster

#: Each rank writes where its node writes, and starts where the node's programs start: what starts
#: it would have it write on the main node, in whose working directory it would start. Its end is
#: told to us, too: launchers may hang on it, or take it for a success. Signals are for the program.
_RANK = (
    'unset MUSTER_TOKEN; cd "${MUSTER_NODE_WORK:-.}" || exit; trap : TERM USR1 USR2; '
    '"$@" >>"${MUSTER_NODE_STDOUT:-/dev/stdout}" 2>>"${MUSTER_NODE_STDERR:-/dev/stderr}"; code=$?; '
    'echo "${PMI_RANK:-$OMPI_COMM_WORLD_RANK} $code" >"$MUSTER_RANK_ENDS"; exit $code'
)


class NoMpi(Exception):  # noqa: N818
    """There is no MPI here that we can start ranks with."""


class Launcher(NamedTuple):
    """flavour: `mpich` or `openmpi`. version: of the latter, the first number."""

    flavour: str
    program: str
    version: int

    @property
    def library(self) -> str | None:
        """The MPI library that belongs to it, where it lies beside it. A folder may have both
        kinds, and mpi4py would take the one it comes upon first."""
        number = "12" if self.flavour == "mpich" else "40"
        folder = os.path.join(os.path.dirname(os.path.dirname(self.program)), "lib")
        path = os.path.join(folder, "libmpi.so." + number)
        return path if os.path.exists(path) else None


def find_launcher(flavour: str) -> Launcher:
    """What `mpiexec` on PATH is (flavour `auto`), or the one asked for. Raises NoMpi."""
    tried = []
    names = {"auto": ("mpiexec", "mpiexec.hydra"), "mpich": ("mpiexec.hydra", "mpiexec")}
    for name in names.get(flavour, ("mpirun", "mpiexec")):
        program = shutil.which(name)
        if program is None:
            tried.append("no %s on PATH" % name)
            continue
        said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
        found = _recognised(program, said.stdout + said.stderr)
        if found is not None and flavour in ("auto", found.flavour):
            return found
        first = (said.stdout + said.stderr).strip().splitlines()[:1] or ["nothing"]
        tried.append("%s says %r" % (program, first[0]))
    wanted = {"auto": "MPICH or Open MPI", "mpich": "MPICH"}.get(flavour, "Open MPI")
    raise NoMpi("no %s here: %s" % (wanted, "; ".join(tried)))


def _recognised(program: str, said: str) -> Launcher | None:
    if "HYDRA" in said:
        return Launcher("mpich", program, 0)
    version = re.search(r"\(Open MPI\) (\d+)", said)
    return None if version is None else Launcher("openmpi", program, int(version[1]))


def hydra_words(program: str, hosts: Sequence[str], each: int, rank: Sequence[str]) -> List[str]:
    """`-launcher manual`: it says which command it wants to have run on each node, and waits.

    -genvnone: ranks have their own node's environment, not the main node's.
    """
    words = [program, "-genvnone", "-launcher", "manual", "-localhost", hosts[0]]
    words += ["-hosts", ",".join(hosts), "-ppn", str(each), "-n", str(each * len(hosts))]
    return [*words, *rank]


def open_mpi_words(
    launcher: Launcher,
    hosts: Sequence[str],
    each: int,
    *,
    agent: str,
    interface: str | None,
    rank: Sequence[str],
) -> List[str]:
    """agent: what is called in the place of ssh, by its path. interface: where its daemons meet
    and ranks talk; without it they take what leads out of the machine, if nodes are on loopback."""
    slots = ",".join("%s:%d" % (host, each) for host in hosts)
    words = [launcher.program, "--host", slots, "-np", str(each * len(hosts)), "--bind-to", "none"]
    words.append("--leave-session-attached")
    if launcher.version >= 5:
        # its daemons meet where they want to: told to meet on loopback, they find no interface
        words += ["--prtemca", "plm_ssh_agent", agent, "--prtemca", "plm_ssh_no_tree_spawn", "1"]
    else:
        words += ["--mca", "plm_rsh_agent", agent, "--mca", "plm_rsh_no_tree_spawn", "1"]
        words += ["--mca", "orte_keep_fqdn_hostnames", "1"]
        if interface is not None:
            words += ["--mca", "oob_tcp_if_include", interface]
    if interface is not None:
        words += ["--mca", "btl_tcp_if_include", interface]
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


def rank_words(program: Sequence[str], launcher: Launcher) -> List[str]:
    """What is started as a rank."""
    text = _RANK
    if launcher.library is not None:
        text = ': "${MPI4PY_LIBMPI:=%s}"; export MPI4PY_LIBMPI; %s' % (launcher.library, text)
    return ["/bin/sh", "-c", text, "rank", *_aborting(program)]


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
