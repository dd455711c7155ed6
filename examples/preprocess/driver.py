"""Splits the text into parts, distributes them to workers, and adds up their counts.

The text is the source of Python's own standard library. The driver needs no arguments: its
environment contains the number of nodes and its own address.
"""

from __future__ import annotations

import json
import os
import socket
import sysconfig
from collections import Counter
from pathlib import Path

PORT = 7070
WORKERS = int(os.environ["INITIAL_CLUSTER_SIZE"]) - 1  # all nodes but this one


def main() -> None:
    folder = Path(sysconfig.get_path("stdlib"))
    files = sorted(str(path) for path in folder.glob("*.py"))
    words: Counter[str] = Counter()
    with socket.create_server((os.environ["MUSTER_NODE_ADDRESS"], PORT)) as server:
        print(f"{len(files)} files for {WORKERS} workers")
        answered = 0
        while answered < WORKERS:
            connection, _ = server.accept()
            with connection, connection.makefile("rw") as stream:
                line = stream.readline()
                if not line:
                    continue  # the startup probe only connects
                request = json.loads(line)
                if "counts" in request:
                    words.update(request["counts"])
                    answered += 1
                else:
                    part = files[request["worker"] :: WORKERS]
                    stream.write(json.dumps(part) + "\n")
    for word, count in words.most_common(5):
        print(f"{count:6} {word}")


if __name__ == "__main__":
    main()
