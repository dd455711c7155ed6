"""Output of nodes over a connection: megabytes a second, and the delay of single lines.

A node server sends a file of 512 MB to this process, over a bridge as with ssh. The floor is the
same file over the same pipes: `cat` in the place of the node program. Then a program writes 5,000
lines a second, each with the time, and this process looks how old they are when they arrive. At
last, what compression does to text of logs and to random bytes: on the wire, and to the time.
"""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from common import compare

from muster.node.connection import Pipes
from muster.node.messages import HostFacts, Leave
from support.node_servers import Supervisor

SIZE, PART = 512 << 20, 64 << 20
LINES = """
import sys, time
begun = time.time()
for number in range(10_000):
    while time.time() < begun + number / 5000:
        time.sleep(0.0001)
    print(time.time(), flush=True)
"""


def log_text(size: int) -> bytes:
    """Lines as of a training."""
    draw = random.Random(1)
    lines, made = [], 0
    while made < size:
        loss, rate = draw.uniform(0.1, 3), draw.uniform(900, 1100)
        line = f"2026-05-01 12:{made % 60:02}:{made % 59:02},{made % 997:03} INFO train.py:214 "
        line += f"step={len(lines)} loss={loss:.4f} lr=3.0e-04 tokens/s={rate:.1f}\n"
        lines.append(line)
        made += len(line)
    return "".join(lines).encode()[:size]


class Counted:
    """Counts what arrives on a connection."""

    def __init__(self, supervisor: Supervisor) -> None:
        self.bytes = 0
        pipes = supervisor.connection._transport
        assert isinstance(pipes, Pipes)
        receive = pipes.recv

        def counting(size: int) -> bytes:
            data = receive(size)
            self.bytes += len(data)
            return data

        pipes.recv = counting  # type: ignore[method-assign]


def compression(folder: Path) -> None:
    """Print what compression does to 64 MB of text and of random bytes."""
    contents = {"text": log_text(PART), "random": os.urandom(PART)}
    made = {}
    for compress in (False, True):
        supervisor = Supervisor(folder / f"compress-{compress}", compress=compress).greet()
        supervisor.expect(HostFacts)
        made[compress] = supervisor, Counted(supervisor)
    for name, content in contents.items():
        path = folder / name
        path.write_bytes(content)
        print(f"\n64 MB of {name}{'':20} {'MB/s':>8} {'on the wire':>12}")
        for compress, (supervisor, counted) in made.items():
            times = []
            for _ in range(5):
                counted.bytes = 0
                times.append(over_streams(supervisor, path, PART))
            rate = PART / statistics.median(times) / 1e6
            text = "compressed" if compress else "as it is"
            print(f"  {text:30} {rate:8.0f} {counted.bytes / PART:11.1%}")
    for supervisor, _ in made.values():
        supervisor.send(Leave())
        supervisor.disconnect()


def over_streams(supervisor: Supervisor, path: Path, expected: int = SIZE) -> float:
    start = time.perf_counter()
    stream = supervisor.streams.open({"kind": "read", "path": str(path)})
    size = 0

    def ended() -> bool:
        nonlocal size
        size += len(stream.take())
        return stream.result is not None

    supervisor.until(ended)
    assert size == expected
    return time.perf_counter() - start


def over_pipes(path: Path) -> float:
    start = time.perf_counter()
    size = 0
    with subprocess.Popen(["cat", str(path)], stdout=subprocess.PIPE) as cat:
        assert cat.stdout is not None
        with subprocess.Popen(["cat"], stdin=cat.stdout, stdout=subprocess.PIPE) as bridge:
            assert bridge.stdout is not None
            while data := os.read(bridge.stdout.fileno(), 1 << 18):
                size += len(data)
    assert size == SIZE
    return time.perf_counter() - start


def delays(supervisor: Supervisor, folder: Path) -> list[float]:
    """Seconds between the time in a line and its arrival."""
    path = folder / "lines"
    with (
        open(path, "wb") as out,
        subprocess.Popen([sys.executable, "-c", LINES], stdout=out) as one,
    ):
        about = {"kind": "read", "path": str(path), "follow": True}
        stream = supervisor.streams.open(about)
        found: list[float] = []
        left = b""

        def arrived() -> bool:
            nonlocal left
            *lines, left = (left + stream.take()).split(b"\n")
            now = time.time()
            found.extend(now - float(line) for line in lines)
            return len(found) == 10_000

        supervisor.until(arrived)
        stream.cancel("all is here")
        one.wait()
    return found


def main() -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        folder = Path(name)
        path = folder / "file"
        path.write_bytes(os.urandom(1 << 20) * (SIZE >> 20))
        supervisor = Supervisor(folder / "server").greet()
        supervisor.expect(HostFacts)
        compare(
            "512 MB of output",
            {
                "floor: cat | cat": lambda: over_pipes(path),
                "a stream": lambda: over_streams(supervisor, path),
            },
            rounds=5,
        )
        found = sorted(delays(supervisor, folder))
        print(
            "5,000 lines a second, delay in ms: "
            f"median {statistics.median(found) * 1000:.1f}, "
            f"99 % {found[int(len(found) * 0.99)] * 1000:.1f}, most {found[-1] * 1000:.1f}"
        )
        supervisor.send(Leave())
        supervisor.disconnect()
        compression(folder)


if __name__ == "__main__":
    main()
