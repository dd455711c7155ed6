"""Asks the driver, which is node-0, for files, and counts the words in them."""

from __future__ import annotations

import json
import os
import re
import socket
from collections import Counter
from pathlib import Path
from typing import Any

DRIVER = ("node-0", 7070)
LONG_ENOUGH = int(os.environ["MIN_LENGTH"])


def ask(request: dict[str, Any]) -> str:
    with socket.create_connection(DRIVER) as connection, connection.makefile("rw") as stream:
        stream.write(json.dumps(request) + "\n")
        stream.flush()
        return stream.readline()


def main() -> None:
    worker = int(os.environ["MUSTER_INDEX"])
    words: Counter[str] = Counter()
    files = json.loads(ask({"worker": worker}))
    for name in files:
        text = Path(name).read_text(encoding="utf-8", errors="replace")
        words.update(w.lower() for w in re.findall("[A-Za-z]+", text) if len(w) >= LONG_ENOUGH)
    print(f"worker {worker}: {sum(words.values())} words in {len(files)} files")
    ask({"counts": dict(words.most_common(200))})


if __name__ == "__main__":
    main()
