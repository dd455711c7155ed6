"""From the command line to a finished run: 1 node and 4, compared with a shell and other tools.

Other tools are measured if installed: pip install torchx submitit 'ray[default]';
Ray also needs a running cluster at RAY_ADDRESS.
"""

from __future__ import annotations

import os
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

from common import MUSTER, Measure, compare, fresh_home, timed

PYTHON = sys.executable
SUBMITIT = """
import sys, tempfile, subprocess, submitit
with tempfile.TemporaryDirectory() as folder:
    executor = submitit.LocalExecutor(folder=folder)
    jobs = [executor.submit(subprocess.check_call, sys.argv[2:]) for _ in range(int(sys.argv[1]))]
    [job.result() for job in jobs]
"""


def shell(count: int, command: str) -> Measure:
    loop = f"for i in $(seq {count}); do {command} & done; wait"
    return timed(["bash", "-c", loop])


def peers(nodes: int, *command: str) -> dict[str, Measure]:
    """Other tools, if they are installed."""
    found: dict[str, Measure] = {}
    torchx = Path(PYTHON).with_name("torchx")
    if torchx.exists():
        argv = [str(torchx), "run", "-s", "local_cwd", "utils.sh", "--num_replicas", str(nodes)]
        found["TorchX run local_cwd"] = timed([*argv, *command])
    if find_spec("submitit"):
        found["submitit LocalExecutor"] = timed([PYTHON, "-c", SUBMITIT, str(nodes), *command])
    ray = shutil.which("ray", path=str(Path(PYTHON).parent))
    if ray is not None and "RAY_ADDRESS" in os.environ:
        found["ray job submit"] = timed([ray, "job", "submit", "--", *command])
    return found


def main() -> None:
    with fresh_home():
        compare(
            "1 node, `true`",
            {
                "floor: bash": shell(1, "/bin/true"),
                "muster run": timed([MUSTER, "run", "--", "true"]),
                "python -c pass": timed([PYTHON, "-c", "pass"]),
                **peers(1, "true"),
            },
        )
        hello = ["python", "-c", "pass"]
        compare(
            "4 nodes, `python -c pass`",
            {
                "floor: bash": shell(4, f"{PYTHON} -c pass"),
                "muster run": timed([MUSTER, "run", "--nodes", "4", "--", *hello]),
                **peers(4, PYTHON, "-c", "pass"),
            },
        )


if __name__ == "__main__":
    main()
