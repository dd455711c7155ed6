"""All benchmarks, one after the other: `make bench`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

NAMES = ("start", "many", "recovery", "controller", "restart_local", "frameworks", "logs", "memory")

for name in (*NAMES, "store", "cli"):
    print(f"\n=== bench/{name}.py", flush=True)
    subprocess.run([sys.executable, str(Path(__file__).with_name(f"{name}.py"))], check=True)
