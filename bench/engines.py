"""Runs in containers and on Slurm, compared with doing the same by hand.

The Slurm cluster and the Podman are those of the tests, on this machine. Of Slurm: four nodes
beside `srun`, 200 short jobs beside 200 times `sbatch`, and 200 nodes. Of containers: four nodes
beside four `podman run` at once. `python bench/engines.py slurm`, or `container`, for one of them.

submitit is measured on the same cluster if the environment PEERS has it: pip install submitit.
TorchX needs `sacct`, whose database this cluster lacks.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from common import MUSTER, Measure, compare, fresh_home, timed

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support import podman_service, slurm_cluster

PYTHON = sys.executable
HELLO = ["--", PYTHON, "-c", "pass"]
NODES, JOBS, AT_ONCE, MANY = 4, 200, 32, 200
#: A Python environment; by default the one that runs this.
PEERS = Path(os.environ.get("PEERS", sys.prefix)) / "bin"
SUBMITIT = """
import subprocess, sys, tempfile, submitit
with tempfile.TemporaryDirectory() as folder:
    executor = submitit.SlurmExecutor(folder=folder)
    executor.update_parameters(nodes=int(sys.argv[1]), ntasks_per_node=1, time=5)
    executor.submit(subprocess.check_call, sys.argv[2:]).results()
"""


def run(engine: str, *words: str) -> list[str]:
    return [MUSTER, "run", "--engine", engine, *words]


def slurm() -> None:
    with fresh_home() as home, tempfile.TemporaryDirectory(prefix="slurm-") as folder:
        cluster = slurm_cluster.SlurmCluster(Path(folder), nodes=MANY, cpus=1)
        os.environ |= cluster.environ
        try:
            slurm_cluster.add_engine(home)
            compare(
                f"Slurm, {NODES} nodes, `python -c pass`",
                {
                    "srun": timed(["srun", f"-N{NODES}", PYTHON, "-c", "pass"]),
                    "sbatch --wait": timed(_batch(f"srun -N{NODES} {PYTHON} -c pass")),
                    "muster run": timed(run("slurm", "--nodes", str(NODES), *HELLO)),
                    **_submitit(),
                },
            )
            submit = f"for i in $(seq {JOBS}); do sbatch -Q -o /dev/null --wrap true; done"
            wait = "sbatch -Q -W -d singleton -o /dev/null --wrap true"
            plain = f"export SBATCH_JOB_NAME=plain; {submit}; {wait}"
            array = [f"--array=n=1..{JOBS}", f"--parallelism={AT_ONCE}", "--", "true"]
            compare(
                f"Slurm, {JOBS} times `true`",
                {
                    "sbatch": timed(["bash", "-c", plain]),
                    "muster run": timed(run("slurm", *array)),
                },
                rounds=3,
                count=JOBS,
            )
            start = time.perf_counter()
            timed(run("slurm", "--nodes", str(MANY), "--", "true"))()
            print(f"\nSlurm, {MANY} nodes: {time.perf_counter() - start:.1f}s")
        finally:
            cluster.stop()


def _submitit() -> dict[str, Measure]:
    """submitit, if it is installed."""
    python = str(PEERS / "python")
    if subprocess.run(
        [python, "-c", "import submitit"], capture_output=True, check=False
    ).returncode:
        return {}
    return {"submitit": timed([python, "-c", SUBMITIT, str(NODES), PYTHON, "-c", "pass"])}


def _batch(command: str) -> list[str]:
    """Submit a job, and wait for it."""
    return ["sbatch", "-Q", "-W", f"-N{NODES}", "-o", "/dev/null", "--wrap", command]


def container() -> None:
    with fresh_home() as home, tempfile.TemporaryDirectory(prefix="podman-") as folder:
        service = podman_service.PodmanService(Path(folder) / "service")
        try:
            podman_service.add_engine(home, service)
            service.podman("network", "create", "bench")
            mounts = [f"--volume={one}" for one in podman_service.machine_mounts()]
            words = ["run", "--rm", "--network=bench", *mounts, podman_service.IMAGE]
            one = shlex.join(service.argv(*words, PYTHON, "-c", "pass"))
            script = f"for i in $(seq {NODES}); do {one} & done; wait"
            compare(
                f"containers, {NODES} nodes, `python -c pass`",
                {
                    "podman run, at the same time": _with(service.environ, ["bash", "-c", script]),
                    "muster run": timed(run("container", "--nodes", str(NODES), *HELLO)),
                },
                rounds=5,
            )
            service.podman("network", "rm", "bench")
        finally:
            service.close()


def _with(environ: Mapping[str, str], argv: list[str]) -> Measure:
    """Seconds of a command with an environment."""

    def measure() -> float:
        start = time.perf_counter()
        subprocess.run(argv, env=dict(environ), check=True, capture_output=True)
        return time.perf_counter() - start

    return measure


if __name__ == "__main__":
    chosen = sys.argv[1:] or ["slurm", "container"]
    for name in chosen:
        {"slurm": slurm, "container": container}[name]()
