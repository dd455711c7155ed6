"""A real Slurm cluster of this user on loopback: virtual nodes, with daemons of its own.

It needs the packages `slurm-wlm` and `munge`, and neither root nor a daemon of the system.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import pytest

from muster.node.processes import state_of
from muster.storage.home import Home
from support.faults import until

_SBIN = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"])
_DAEMONS = ("munged", "slurmctld", "slurmd")
_NEEDED = (*_DAEMONS, "sbatch", "srun", "squeue")


def missing_programs() -> list[str]:
    """The programs of Slurm that are not installed."""
    return [name for name in _NEEDED if shutil.which(name, path=_SBIN) is None]


needs_slurm = pytest.mark.skipif(
    bool(missing_programs()) and not os.environ.get("REQUIRE_PROGRAMS"),
    reason=f"Slurm is not installed: {', '.join(missing_programs())}",
)

CONFIG = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/run/slurmctld.pid
SlurmdPidFile={folder}/run/%n.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=512
SlurmdParameters=config_overrides
KillWait=2
ReturnToService=2
{settings}
NodeName=n[1-{nodes}] NodeAddr=127.0.0.1 NodeHostname={host} Port=[{first}-{last}] \
CPUs={cpus} RealMemory=65536
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
PartitionName=short Nodes=ALL MaxTime=5 State=UP
"""
#: What daemons and commands may take on a busy machine: Slurm takes nodes that answer later for
#: lost, does not use those again on which processes end later, and launches fail that take longer.
PATIENT = """\
MessageTimeout=100
SlurmdTimeout=300
BatchStartTimeout=300
UnkillableStepTimeout=300
"""
#: The scheduler looks at once, as the clusters of tests are small.
FAST = (
    "SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0,"
    "default_queue_depth=500,bf_interval=1"
)


class SlurmCluster:
    """A running cluster. settings: further lines of its configuration."""

    def __init__(self, folder: Path, nodes: int = 4, cpus: int = 8, settings: str = FAST) -> None:
        self.folder, self.nodes = folder, nodes
        for name in ("munge", "state", "spool", "run", "log"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        folder.chmod(0o755)
        first = _free_ports(nodes + 1)
        user = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True)
        text = CONFIG.format(
            folder=folder,
            host=socket.gethostname(),
            port=first,
            first=first + 1,
            last=first + nodes,
            nodes=nodes,
            cpus=cpus,
            settings=settings,
            user=user.stdout.strip(),
        )
        self.config = folder / "slurm.conf"
        self.config.write_text(text + PATIENT)
        #: For commands that are to learn within ten seconds that the controller is away.
        self.impatient = folder / "impatient.conf"
        self.impatient.write_text(text)
        #: With these variables, the clients of Slurm use this cluster.
        self.environ = {"SLURM_CONF": str(self.config), "PATH": _SBIN}
        self._start_munge()
        self.start_controller()
        for number in range(1, nodes + 1):
            self.start_node(f"n{number}")
        until(self.is_idle, "all nodes of the cluster are idle", pause=0.02)

    # --- daemons

    def _start_munge(self) -> None:
        munge = self.folder / "munge"
        munge.chmod(0o711)
        key = munge / "key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        options = {"key-file": "key", "socket": "socket", "pid-file": "pid", "log-file": "log"}
        words = [f"--{name}={munge / file}" for name, file in options.items()]
        self.run("munged", *words, f"--seed-file={munge / 'seed'}", "--force")

    def start_controller(self) -> None:
        """Start slurmctld, which finds the state of an earlier one."""
        self.run("slurmctld", "-f", str(self.config))

    def stop_controller(self) -> None:
        """End slurmctld, which saves its state: else it would start jobs again that have ended."""
        _kill(self._pid("slurmctld"), signal.SIGTERM)

    def start_node(self, name: str) -> None:
        """Start the slurmd of a node."""
        self.run("slurmd", "-f", str(self.config), "-N", name)

    def _pid(self, name: str) -> int:
        return int((self.folder / "run" / f"{name}.pid").read_text())

    def stop(self) -> None:
        """End all jobs and daemons."""
        with contextlib.suppress(subprocess.SubprocessError):
            self.run("scancel", f"--user={os.getuid()}", "--signal=KILL", "--full")
            self.run("scancel", f"--user={os.getuid()}")
            with contextlib.suppress(AssertionError):
                until(lambda: not self.jobs(), "no job is left", timeout=10, pause=0.02)
        pids = [self._pid(path.stem) for path in (self.folder / "run").glob("*.pid")]
        for pid in [*pids, int((self.folder / "munge" / "pid").read_text())]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in self._processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _processes(self) -> list[int]:
        """Processes of jobs, and of those who use the cluster, except this one."""
        marks = {f"SLURM_CONF={path}".encode() for path in (self.config, self.impatient)}
        found = []
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit() and int(folder.name) != os.getpid():
                with contextlib.suppress(OSError):
                    if marks & set((folder / "environ").read_bytes().split(b"\0")):
                        found.append(int(folder.name))
        return found

    # --- what it does

    def run(self, *words: str, environ: Mapping[str, str] = {}) -> str:
        """What a command of Slurm prints."""
        done = subprocess.run(
            words,
            env={**os.environ, **self.environ, **environ},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        if done.returncode:
            raise subprocess.SubprocessError(f"{words}: {done.stderr}")
        return done.stdout

    def is_idle(self) -> bool:
        """Whether all nodes are idle."""
        with contextlib.suppress(subprocess.SubprocessError):
            states = self.run("sinfo", "-h", "-N", "-p", "main", "-o", "%t").split()
            return states == ["idle"] * self.nodes
        return False

    def jobs(self, *options: str) -> list[str]:
        """`ID NAME STATE` of each job that has not ended."""
        return self.run("squeue", "-h", "-o", "%A %j %T", *options).splitlines()


def _kill(pid: int, number: int = signal.SIGKILL) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
    until(lambda: state_of(pid) in ("", "Z"), f"process {pid} has ended")


def _free_ports(count: int) -> int:
    """The first of neighbouring ports that are free now, between those that Muster gives to
    programs (`node.free_ports`) and those that the kernel gives out."""
    for _ in range(100):
        first = 32_000 + int.from_bytes(os.urandom(2), "big") % (768 - count)
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for port in range(first, first + count):
                stack.enter_context(socket.create_server(("127.0.0.1", port)))
            return first
    raise AssertionError("no free ports")


@cache
def shared_cluster() -> SlurmCluster:
    """One for all tests of this process, which ends with it."""
    import atexit

    cluster = SlurmCluster(Path(tempfile.mkdtemp(prefix="slurm-")), nodes=16, cpus=64)
    atexit.register(cluster.stop)
    return cluster


def use_cluster(cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have processes that start from now on use a cluster."""
    for name, value in cluster.environ.items():
        monkeypatch.setenv(name, value)


def require_slurm() -> None:
    """Skip the test where Slurm is not installed, unless it has to be."""
    if missing := missing_programs():
        assert not os.environ.get("REQUIRE_PROGRAMS"), f"not installed: {missing}"
        pytest.skip(f"Slurm is not installed: {', '.join(missing)}")


def add_engine(home: Path, **settings: object) -> None:
    """Add an engine `slurm` to a MUSTER_HOME."""
    from muster.engines import profiles

    settings = {"python": sys.executable, **settings}
    text = profiles.profile_text("slurm", "slurm", settings)
    profiles.write_profile(profiles.file_of(Home(home), "slurm"), text)


def main(words: Sequence[str]) -> None:
    """Keep a cluster until standard input ends: `python slurm_cluster.py [NODES]`."""
    cluster = SlurmCluster(Path(tempfile.mkdtemp(prefix="slurm-")), *map(int, words))
    try:
        print(f"export SLURM_CONF={cluster.config}", flush=True)
        sys.stdin.read()
    finally:
        cluster.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
