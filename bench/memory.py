"""Proportional set size of a supervisor and of its nodes' agents, with 1 node and with 100."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from common import MUSTER, fresh_home


def pss(pid: int) -> float:
    """The proportional set size of a process in MB."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    match = re.search(r"^Pss:\s+(\d+) kB", text, re.MULTILINE)
    assert match is not None
    return int(match[1]) / 1000


def children(pid: int) -> list[int]:
    return [int(c) for c in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def measure(nodes: int) -> None:
    with fresh_home() as home:
        command = [MUSTER, "run", "--detach", "--nodes", str(nodes), "--", "sleep", "1000"]
        subprocess.run(command, capture_output=True, check=True)
        shown = ""
        while f"{nodes} ready" not in shown:
            shown = subprocess.check_output([MUSTER, "runs", "show", "last"], text=True)
        (lease,) = home.glob("runs/*/lease")
        pid = int(lease.read_text())
        agents = [pss(child) for child in children(pid)]
        print(
            f"{nodes:4} nodes: supervisor {pss(pid):5.1f} MB, agents {sum(agents):6.1f} MB "
            f"({sum(agents) / len(agents):.2f} MB each)",
            flush=True,
        )
        subprocess.run([MUSTER, "runs", "cancel", "last"], capture_output=True, check=True)


if __name__ == "__main__":
    for count in (1, 100):
        measure(count)
