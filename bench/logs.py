"""Log throughput: 8 nodes that write 100-byte lines, against the same 8 with plain redirection."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import MUSTER, compare, fresh_home

NODES, LINES = 8, 1_600_000
WRITER = (
    "import sys; line = b'x' * 99 + b'\\n'; out = sys.stdout.buffer\n"
    f"for _ in range({LINES} // 80): out.write(line * 80); out.flush()"
)
SIZE = NODES * LINES * 100


def redirected() -> float:
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        writers = []
        for i in range(NODES):
            with open(Path(folder) / str(i), "wb") as file:
                writers.append(subprocess.Popen([sys.executable, "-c", WRITER], stdout=file))
        for writer in writers:
            writer.wait()
        return time.perf_counter() - start


def run(*flags: str) -> float:
    """Seconds from the command to the end of the run, with or without showing its output."""
    with fresh_home() as home:
        command = [MUSTER, "run", "--nodes", str(NODES), *flags, "--", "python", "-c", WRITER]
        start = time.perf_counter()
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
        if "--detach" in flags:
            subprocess.run([MUSTER, "runs", "wait", "last"], capture_output=True, check=True)
        took = time.perf_counter() - start
        written = sum(path.stat().st_size for path in home.glob("runs/*/logs/0/*.out"))
        assert written == SIZE, f"{SIZE - written} bytes are missing"
        return took


if __name__ == "__main__":
    print(f"{SIZE / 1e6:.0f} MB from {NODES} nodes")
    compare(
        "log throughput",
        {
            "floor: redirected to files": redirected,
            "muster run --detach": lambda: run("--detach"),
            "muster run, shown merged": run,
        },
        rounds=3,
    )
