"""Runs a JAX program with its process's share of the node's GPUs:

    python -m muster.node.jax PROGRAM ARGUMENT...

If JAX recognizes the launcher, it assumes one process for each GPU and uses only that GPU. This
sets JAX_LOCAL_DEVICE_IDS to the GPUs that the process is to use, unless it is set already.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from typing import List, Mapping, Sequence

from muster.node.processes import CannotStart, find_program

#: Variables that limit the GPUs a process sees, for CUDA and ROCm. JAX numbers only those.
VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
SHARE = "JAX_LOCAL_DEVICE_IDS"


def main(argv: Sequence[str]) -> int:
    """Become the program. Returns the exit code if that fails."""
    env = dict(os.environ)
    share = gpu_share(
        gpu_count(env, "/dev"),
        int(env.get("OMPI_COMM_WORLD_LOCAL_RANK", "0")),
        int(env.get("OMPI_COMM_WORLD_LOCAL_SIZE", "1")),
    )
    if share:
        env.setdefault(SHARE, ",".join(map(str, share)))
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # ignored by the interpreter
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execve(find_program(argv[0], env), list(argv), env)
    except CannotStart as error:
        sys.stderr.write("muster: %s\n" % error)
        return error.code


def gpu_count(env: Mapping[str, str], devices: str) -> int:
    """How many GPUs a process sees: those in `VISIBLE`, or NVIDIA's devices in `devices`."""
    for name in VISIBLE:
        if name in env:
            words = env[name].replace(" ", "").split(",")
            # CUDA: devices after an invalid one are ignored
            ends = [at for at, word in enumerate(words) if word in ("", "-1")]
            return min([*ends, len(words)])
    return sum(bool(re.fullmatch(r"nvidia\d+", name)) for name in os.listdir(devices))


def gpu_share(gpus: int, local_rank: int, processes: int) -> List[int]:
    """The GPUs of one process. All GPUs are used; if there are fewer than processes, they are
    shared."""
    if gpus < processes:
        return [local_rank % gpus] if gpus else []
    return list(range(gpus * local_rank // processes, gpus * (local_rank + 1) // processes))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
