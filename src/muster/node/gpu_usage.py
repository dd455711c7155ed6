"""What the GPUs of nodes are doing, as nvidia-smi says."""

from __future__ import annotations

import shutil
import subprocess
from typing import Dict, List, Mapping, NamedTuple, Sequence

from muster.node import launch_record
from muster.node.counters import Counters
from muster.node.machine import gpu_numbers

#: The words after `nvidia-smi`.
QUERY = ("--query-gpu=index,utilization.gpu,memory.used", "--format=csv,noheader,nounits")
#: Seconds that nvidia-smi may take.
_TIMEOUT = 5.0
_VARIABLE = "CUDA_VISIBLE_DEVICES"


class Gpu(NamedTuple):
    """One GPU now."""

    #: The part of the time in which it worked, from 0 to 1.
    busy: float
    #: Bytes in use.
    memory: int


def read_gpus(timeout: float = _TIMEOUT) -> Dict[int, Gpu]:
    """The GPUs of this machine by number, in one call; empty without GPUs or nvidia-smi, or if it
    takes longer than `timeout` seconds."""
    program = shutil.which("nvidia-smi") if gpu_numbers() else None
    if program is None:
        return {}
    try:
        done = subprocess.run(
            [program, *QUERY], capture_output=True, text=True, timeout=timeout, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return {}
    return parse(done.stdout)


def parse(text: str) -> Dict[int, Gpu]:
    """The lines of nvidia-smi, such as `0, 87, 10240`; without GPUs that do not tell ("[N/A]")."""
    found = {}
    for line in text.splitlines():
        words = [word.strip() for word in line.split(",")]
        if len(words) == 3 and all(word.isdigit() for word in words):
            number, percent, mebibytes = map(int, words)
            found[number] = Gpu(percent / 100, mebibytes << 20)
    return found


def with_gpus(counters: Counters, agent: int, gpus: Mapping[int, Gpu]) -> Counters:
    """The counters of the agent's node with those of its GPUs."""
    record = launch_record.read(agent) if gpus else None
    own = [] if record is None else gpus_of(record.environments[0], gpus)
    return with_usage(counters, own)


def with_usage(counters: Counters, own: Sequence[Gpu]) -> Counters:
    """The counters of a node with those of its GPUs, if it has any."""
    if not own:
        return counters
    busy, memory = sum(gpu.busy for gpu in own), sum(gpu.memory for gpu in own)
    return counters._replace(gpus=busy, gpu_memory=memory)


def gpus_of(environment: Mapping[str, str], gpus: Mapping[int, Gpu]) -> List[Gpu]:
    """The GPUs that a program with this environment sees."""
    visible = environment.get(_VARIABLE)
    if visible is None:
        return [*gpus.values()]
    numbers = [int(word) for word in visible.split(",") if word.strip().isdigit()]
    return [gpus[number] for number in numbers if number in gpus]
