"""All benchmarks, one after the other: `make bench`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

NAMES = ("start", "many", "recovery", "controller", "restart", "frameworks")

for name in (
    *NAMES,
    "logs",
    "memory",
    "store",
    "cli",
    "arrays",
    "array_views",
    "contacts",
    "policies",
):
    print(f"\n=== bench/{name}.py", flush=True)
    subprocess.run([sys.executable, str(Path(__file__).with_name(f"{name}.py"))], check=True)
