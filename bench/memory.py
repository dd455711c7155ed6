"""Proportional set size of a supervisor and of its nodes' agents, with 1 node and with 100."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from common import MUSTER, fresh_home
from restart import count

import muster


def pss(pid: int) -> float:
    """The proportional set size of a process in MB."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    match = re.search(r"^Pss:\s+(\d+) kB", text, re.MULTILINE)
    assert match is not None
    return int(match[1]) / 1000


def children(pid: int) -> list[int]:
    return [int(c) for c in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def measure(nodes: int) -> tuple[float, float]:
    """The megabytes of the supervisor of a run, and of each of its agents."""
    with fresh_home() as home:
        command = [MUSTER, "run", "--detach", "--nodes", str(nodes), "--", "sleep", "1000"]
        subprocess.run(command, capture_output=True, check=True)
        ready = 0
        for entry in muster.get_run("last").events(follow=True):
            if entry.kind == "nodes" and entry.data["state"] == "READY":
                ready += count(entry.data["ranks"])
            if ready == nodes:
                break
        (lease,) = home.glob("runs/*/lease")
        pid = int(lease.read_text())
        agents = [pss(child) for child in children(pid)]
        supervisor = pss(pid)
        subprocess.run([MUSTER, "runs", "cancel", "last"], capture_output=True, check=True)
    return supervisor, sum(agents) / len(agents)


if __name__ == "__main__":
    for nodes in (1, 100):
        supervisor, agent = measure(nodes)
        print(
            f"{nodes:4} nodes: supervisor {supervisor:5.1f} MB, agents {agent * nodes:6.1f} MB "
            f"({agent:.2f} MB each)",
            flush=True,
        )
