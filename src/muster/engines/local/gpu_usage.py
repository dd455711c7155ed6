"""What the GPUs of nodes are doing, as nvidia-smi says."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from muster.engines.machine import gpu_numbers
from muster.node import launch_record
from muster.storage.usage import Counters

_QUERY = ("--query-gpu=index,utilization.gpu,memory.used", "--format=csv,noheader,nounits")
#: Seconds that nvidia-smi may take.
_TIMEOUT = 5.0
#: Seconds between two calls for the record of a run. A call costs some 50 ms of CPU time.
RECORD_INTERVAL = 20.0
_VARIABLE = "CUDA_VISIBLE_DEVICES"


class Gpu(NamedTuple):
    """One GPU now."""

    #: The part of the time in which it worked, from 0 to 1.
    busy: float
    #: Bytes in use.
    memory: int


def read_gpus() -> dict[int, Gpu]:
    """The GPUs of this machine by number, in one call; empty without GPUs or nvidia-smi."""
    program = shutil.which("nvidia-smi") if gpu_numbers() else None
    if program is None:
        return {}
    try:
        done = subprocess.run(
            [program, *_QUERY], capture_output=True, text=True, timeout=_TIMEOUT, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return {}
    return parse(done.stdout)


def parse(text: str) -> dict[int, Gpu]:
    """The lines of nvidia-smi, such as `0, 87, 10240`; without GPUs that do not tell ("[N/A]")."""
    found = {}
    for line in text.splitlines():
        words = [word.strip() for word in line.split(",")]
        if len(words) == 3 and all(word.isdigit() for word in words):
            number, percent, mebibytes = map(int, words)
            found[number] = Gpu(percent / 100, mebibytes << 20)
    return found


class GpuSampler:
    """Calls nvidia-smi now and then, and never waits for it."""

    def __init__(self) -> None:
        self._program = shutil.which("nvidia-smi")
        self._next = 0.0
        self._latest: dict[int, Gpu] = {}
        self._pid: int | None = None
        self._output = tempfile.TemporaryFile()  # noqa: SIM115  closed by `close`

    def read(self, now: float) -> dict[int, Gpu]:
        """What the last call said, and start another if it is due. now: seconds."""
        if self._program is not None and self._pid is None and now >= self._next:
            self._next = now + RECORD_INTERVAL
            self._output.seek(0)
            self._output.truncate()
            actions = [
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, self._output.fileno(), 1),
                (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
            ]
            with contextlib.suppress(OSError):  # it was removed
                self._pid = os.posix_spawn(
                    self._program, [self._program, *_QUERY], os.environ, file_actions=actions
                )
        return self._latest

    def pids(self) -> Collection[int]:
        """The process that runs now, if any."""
        return () if self._pid is None else (self._pid,)

    def reaped(self, pid: int) -> bool:
        """Take the answer of a process that has ended; False if it is not of this object."""
        if pid != self._pid:
            return False
        self._pid = None
        self._output.seek(0)
        self._latest = parse(self._output.read().decode(errors="replace"))
        return True

    def close(self) -> None:
        """Close the file. The process is ended with all others of the session."""
        self._output.close()


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
    return replace(counters, gpus=busy, gpu_memory=memory)


def gpus_of(environment: Mapping[str, str], gpus: Mapping[int, Gpu]) -> list[Gpu]:
    """The GPUs that a program with this environment sees."""
    visible = environment.get(_VARIABLE)
    if visible is None:
        return [*gpus.values()]
    numbers = [int(word) for word in visible.split(",") if word.strip().isdigit()]
    return [gpus[number] for number in numbers if number in gpus]
