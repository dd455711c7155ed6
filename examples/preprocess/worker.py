"""Asks the driver for files and counts the words in them.

The cluster metadata file, which lists every node that has joined, has the driver's address.
"""

from __future__ import annotations

import json
import os
import re
import socket
from collections import Counter
from pathlib import Path
from typing import Any

PORT = 7070
LONG_ENOUGH = int(os.environ["MIN_LENGTH"])


def driver_address() -> str:
    """The driver has joined before any worker starts: the job has `startup: in_order`."""
    roster = json.loads(Path(os.environ["CLUSTER_NODES_METADATA_FILE"]).read_text())
    return next(node["IpAddress"] for node in roster if node["NodeGroupName"] == "driver")


def send(request: dict[str, Any]) -> str:
    """Send the driver one line and return the line it answers, which may be empty."""
    driver = (driver_address(), PORT)
    with socket.create_connection(driver) as connection, connection.makefile("rw") as stream:
        stream.write(json.dumps(request) + "\n")
        stream.flush()
        return stream.readline()


def main() -> None:
    worker = int(os.environ["MUSTER_INDEX"])
    words: Counter[str] = Counter()
    files = json.loads(send({"worker": worker}))
    for name in files:
        text = Path(name).read_text(encoding="utf-8", errors="replace")
        words.update(w.lower() for w in re.findall("[A-Za-z]+", text) if len(w) >= LONG_ENOUGH)
    print(f"worker {worker}: {sum(words.values())} words in {len(files)} files")
    send({"counts": dict(words.most_common(200))})


if __name__ == "__main__":
    main()
