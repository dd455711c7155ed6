"""Two nodes of each framework, started with the framework's own commands, to compare Muster with.
The code adds no waits to those of the framework itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

BIN = Path(sys.executable).parent
PYTHON = sys.executable
NODES = ("127.0.1.1", "127.0.1.2")
MAIN = NODES[0]
#: Seconds that anything may take before it counts as hanging.
TIMEOUT = 300.0
Process = subprocess.Popen[bytes]


class Hand:
    """Start and end processes. Each writes to a file in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._started: list[tuple[Process, Path]] = []

    def start(self, *words: object, env: Mapping[str, object] | None = None) -> Process:
        """Start a process in a new session; `env` is added to this process's environment."""
        path = self.folder / f"{len(self._started)}.out"
        more = {name: str(value) for name, value in (env or {}).items()}
        with path.open("wb") as file:
            process = subprocess.Popen(
                [str(word) for word in words],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONUNBUFFERED": "1", **more},
                cwd=self.folder,
                start_new_session=True,
            )
        self._started.append((process, path))
        return process

    def output(self, process: Process) -> str:
        """The output of a process so far."""
        path = next(path for one, path in self._started if one is process)
        return path.read_text(errors="replace")

    def until(self, condition: Callable[[], bool]) -> None:
        """Poll until the condition holds. Raises SystemExit after a timeout."""
        end = time.monotonic() + TIMEOUT
        while not condition():
            if time.monotonic() > end:
                raise SystemExit(f"started by hand, it hangs:\n{self.all_output()}")
            time.sleep(0.005)

    def all_output(self) -> str:
        return "\n".join(path.read_text(errors="replace") for _, path in self._started)

    def close(self) -> None:
        """End the running processes in the order of their start: workers end with their head."""
        for process, _ in self._started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
        for process, _ in self._started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("", 0))
        return int(listener.getsockname()[1])


def answers(address: str, port: int) -> bool:
    with contextlib.suppress(OSError):
        socket.create_connection((address, port), 1).close()
        return True
    return False


def pytorch(hand: Hand, script: Path) -> Sequence[Process]:
    """Ranks need only five variables."""
    port = free_port()
    same = {"MASTER_ADDR": MAIN, "MASTER_PORT": port, "WORLD_SIZE": 2, "LOCAL_RANK": 0}
    return [hand.start(PYTHON, script, env={**same, "RANK": rank}) for rank in (0, 1)]


def torchrun(hand: Hand, script: Path) -> Sequence[Process]:
    port = free_port()
    words = ("--nnodes", 2, "--nproc-per-node", 1, "--max-restarts", 3)
    rendezvous = (
        "--rdzv-backend",
        "c10d",
        "--rdzv-id",
        "bench",
        "--rdzv-endpoint",
        f"{MAIN}:{port}",
    )
    started = []
    for node in NODES:
        # every 127.x address is local: name the process that hosts the store
        own = ("--local-addr", node, "--rdzv-conf", f"is_host={node == MAIN}".lower())
        started.append(hand.start(BIN / "torchrun", *words, *rendezvous, *own, script))
    return started


def dask(hand: Hand, script: Path) -> Sequence[Process]:
    """Start all at once: workers and client retry until the scheduler answers."""
    port = free_port()
    address = f"tcp://{MAIN}:{port}"
    where = ("--host", MAIN, "--port", port, "--dashboard-address", f"{MAIN}:{free_port()}")
    hand.start(BIN / "dask", "scheduler", *where)
    for rank, node in enumerate(NODES):
        words = ("--host", node, "--name", f"node-{rank}", "--nthreads", 1, "--no-dashboard")
        hand.start(BIN / "dask", "worker", address, *words)
    return [hand.start(PYTHON, script, env={"DASK_SCHEDULER_ADDRESS": address})]


def ray(hand: Hand, script: Path) -> Sequence[Process]:
    """Start the driver and the other node as soon as the head answers. Waiting for `ray start` to
    report that it is up, or for the dashboard to show both, was slower."""
    port = free_port()
    same = ("--num-cpus", 1, "--object-store-memory", 100_000_000, "--disable-usage-stats")
    start = (BIN / "ray", "start", "--block", *same, "--temp-dir")
    head = ("--head", "--node-ip-address", MAIN, "--port", port, "--dashboard-host", MAIN)
    ports = ("--dashboard-port", free_port(), "--ray-client-server-port", free_port())
    hand.start(*start, hand.folder / "0", *head, *ports)
    hand.until(lambda: answers(MAIN, port))
    other = ("--address", f"{MAIN}:{port}", "--node-ip-address", NODES[1])
    hand.start(*start, hand.folder / "1", *other)
    return [hand.start(PYTHON, script, env={"RAY_ADDRESS": f"{MAIN}:{port}"})]


def mpi(hand: Hand, script: Path) -> Sequence[Process]:
    """MPICH's mpiexec prints the command to run on each node."""
    words = ("-launcher", "manual", "-localhost", MAIN, "-hosts", ",".join(NODES))
    # with several MPIs installed, mpi4py uses the first one it finds
    library = BIN.parent / "lib" / "libmpi.so.12"
    env = {"MPI4PY_LIBMPI": library} if library.exists() else {}
    program = (PYTHON, "-m", "mpi4py", script)
    mpiexec = hand.start(BIN / "mpiexec.hydra", *words, "-ppn", 1, "-n", 2, *program, env=env)
    hand.until(lambda: "HYDRA_LAUNCH_END" in hand.output(mpiexec))
    for line in hand.output(mpiexec).splitlines():
        if line.startswith("HYDRA_LAUNCH: "):
            hand.start("sh", "-c", f"exec {line.removeprefix('HYDRA_LAUNCH: ')}", env=env)
    return [mpiexec]


def jax(hand: Hand, script: Path) -> Sequence[Process]:
    same = {"JAX_COORDINATOR_ADDRESS": f"{MAIN}:{free_port()}", "JAX_NUM_PROCESSES": 2}
    return [hand.start(PYTHON, script, env={**same, "JAX_PROCESS_ID": rank}) for rank in (0, 1)]


def tensorflow(hand: Hand, script: Path) -> Sequence[Process]:
    cluster = {"worker": [f"{node}:{free_port()}" for node in NODES]}
    configs = [{"cluster": cluster, "task": {"type": "worker", "index": rank}} for rank in (0, 1)]
    return [hand.start(PYTHON, script, env={"TF_CONFIG": json.dumps(one)}) for one in configs]


def horovod(hand: Hand, script: Path) -> Sequence[Process]:
    """On one host: for two, horovodrun needs ssh."""
    words = ("--gloo", "--network-interfaces", "lo", "-np", 2, "-H", "localhost:2")
    return [hand.start(BIN / "horovodrun", *words, PYTHON, script)]
