"""One node of many fails: how long until all are running again, with real processes?

Measured from the message that makes one node's program fail until the run's event log shows every
node running again, including agents, controller and store. `recreate` gives each replica new nodes
as soon as its old ones are removed, and there is one replica; in place, only processes are new. The
floor is the time a shell needs to end and restart the same number of processes. At last four nodes
in place on other engines, all on this machine: over ssh, on Slurm, and in containers of Podman.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from common import fresh_home

import muster

#: Adds an engine to a MUSTER_HOME.
AddEngine = Callable[[Path], object]
ROUNDS = 5
#: The last node fails on request, in its first incarnation.
PROGRAM = """
if [ $MUSTER_RESTART = 0 ] && [ $((NODE_RANK + 1)) = $NODE_COUNT ]; then
    read word < $FIFO; exit 1
fi
exec sleep 1000
"""
FLOOR = """
start() { for i in $(seq $1); do sleep 1000 & done; }
start $1; read word; kill $(jobs -p); wait; start $1; echo again; kill $(jobs -p)
"""


def floor(nodes: int) -> float:
    argv = ["bash", "-c", FLOOR, "floor", str(nodes)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as shell:
        assert shell.stdin is not None
        assert shell.stdout is not None
        start = time.perf_counter()
        shell.stdin.write(b"go\n")
        shell.stdin.flush()
        shell.stdout.readline()
        return time.perf_counter() - start


def restart(
    nodes: int, strategy: str, engine: str = "local", add: AddEngine | None = None
) -> float:
    """Seconds from the failure to all running again. add: adds the engine."""
    with fresh_home() as home:
        if add is not None:
            add(home)
        fifo, spec = home / "fifo", home / "job.json"
        os.mkfifo(fifo)
        job = {
            "name": "bench",
            "command": ["sh", "-c", PROGRAM],
            "env": {"FIFO": str(fifo)},
            "nodes": nodes,
            "engine": engine,
            "failure": {"max_restarts": 1, "strategy": strategy},
        }
        spec.write_text(json.dumps(job))
        run = muster.run(spec)
        up = {0: 0, 1: 0}
        start = 0.0
        for entry in run.events(follow=True):
            if entry.kind != "nodes" or entry.data["state"] != "READY":
                continue
            incarnation = entry.data.get("restart", 0)
            up[incarnation] += count(entry.data["ranks"])
            if incarnation == 0 and up[0] == nodes:
                start = time.time()
                fifo.write_text("go\n")
            elif up[1] == nodes:
                break
        run.cancel().wait(60)
        return entry.time.timestamp() - start


def count(ranks: str) -> int:
    """The number of ranks in "0-3,7"."""
    bounds = [part.partition("-") for part in ranks.split(",")]
    return sum(int(last or first) - int(first) + 1 for first, _, last in bounds)


def main() -> None:
    print(f"{'nodes':>6} {'floor':>9} {'in place':>9} {'recreate':>9}  in place is")
    for nodes in (4, 32, 100):
        taken: dict[str, list[float]] = {"floor": [], "in_place": [], "recreate": []}
        for _ in range(ROUNDS):
            taken["floor"].append(floor(nodes))
            for strategy in ("in_place", "recreate"):
                taken[strategy].append(restart(nodes, strategy))
        middle = {name: statistics.median(times) * 1000 for name, times in taken.items()}
        print(
            f"{nodes:6} {middle['floor']:7.1f}ms {middle['in_place']:7.1f}ms "
            f"{middle['recreate']:7.1f}ms  {middle['in_place'] / middle['floor']:.1f} x the floor, "
            f"{middle['recreate'] / middle['in_place']:.1f} x faster than recreate",
            flush=True,
        )
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, engines(Path(folder)) as added:
        taken = {name: [] for name in ("local", *added)}
        for _ in range(ROUNDS):
            taken["local"].append(restart(4, "in_place"))
            for name, add in added.items():
                taken[name].append(restart(4, "in_place", name, add))
    middle = {name: statistics.median(times) * 1000 for name, times in taken.items()}
    for name in added:
        ratio = middle[name] / middle["local"]
        print(f"4 nodes in place, engine {name}: {middle[name]:.1f}ms, {ratio:.1f} x local")


@contextmanager
def engines(folder: Path) -> Iterator[dict[str, AddEngine]]:
    """What adds each engine, while its machines run."""
    from support import podman_service, slurm_cluster, ssh_hosts

    sshd = ssh_hosts.Sshd(folder)
    cluster = slurm_cluster.SlurmCluster(folder / "slurm")
    os.environ |= cluster.environ
    podman = podman_service.PodmanService(folder / "podman")
    try:
        yield {
            "hosts": lambda home: ssh_hosts.add_engine(home, sshd, slots=4),
            "slurm": slurm_cluster.add_engine,
            "container": lambda home: podman_service.add_engine(home, podman),
        }
    finally:
        podman.close()
        cluster.stop()
        sshd.stop()


if __name__ == "__main__":
    main()
