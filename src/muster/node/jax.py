"""Run a program of JAX's with its process's share of the node's GPUs:

    python -m muster.node.jax PROGRAM ARGUMENT...

JAX takes a launcher it knows to have started one process for each GPU, and uses no other GPU in
any of them. Which ones it shall use stands in JAX_LOCAL_DEVICE_IDS, unless that is set already.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from typing import List, Mapping, Sequence

from muster.node.processes import CannotStart, find_program

#: Which GPUs a process may see, for CUDA and for ROCm. JAX counts among those.
VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
SHARE = "JAX_LOCAL_DEVICE_IDS"


def main(argv: Sequence[str]) -> int:
    """Becomes the program. Returns the exit code where it cannot."""
    env = dict(os.environ)
    share = gpu_share(
        gpu_count(env, "/dev"),
        int(env.get("OMPI_COMM_WORLD_LOCAL_RANK", "0")),
        int(env.get("OMPI_COMM_WORLD_LOCAL_SIZE", "1")),
    )
    if share:
        env.setdefault(SHARE, ",".join(map(str, share)))
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which the interpreter ignores
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execve(find_program(argv[0], env), list(argv), env)
    except CannotStart as error:
        sys.stderr.write("muster: %s\n" % error)
        return error.code


def gpu_count(env: Mapping[str, str], devices: str) -> int:
    """How many GPUs a process sees: those it may, or those of NVIDIA's driver below `devices`."""
    for name in VISIBLE:
        if name in env:
            words = env[name].replace(" ", "").split(",")
            # CUDA: what stands after one that there is not counts no more
            ends = [at for at, word in enumerate(words) if word in ("", "-1")]
            return min([*ends, len(words)])
    return sum(bool(re.fullmatch(r"nvidia\d+", name)) for name in os.listdir(devices))


def gpu_share(gpus: int, local_rank: int, processes: int) -> List[int]:
    """Those of one process: every GPU is somebody's, or, where they are too few, shared."""
    if gpus < processes:
        return [local_rank % gpus] if gpus else []
    return list(range(gpus * local_rank // processes, gpus * (local_rank + 1) // processes))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
