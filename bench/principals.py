"""The start of runs whose nodes have credentials: `python bench/principals.py [NODES]`.

The floor is the same run without credentials. The first run finds no keys ready; before each other
one, the server has had time to make some.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from contextlib import closing
from pathlib import Path

from common import fresh_home

sys.path.append(str(Path(__file__).parent.parent / "tests"))

from muster.caller import local_caller
from muster.plan.model import PrincipalPlan
from muster.service.backend import Backend
from muster.service.embedded import EmbeddedAPI
from muster.storage.home import Home
from muster.storage.key_pool import KeyPool
from muster.submission import Submission
from support.api_runs import start, wait

RUNS = 5
#: Seconds between two runs.
PAUSE = 6.0
PRINCIPAL = PrincipalPlan("tenancy", "compartment", "muster.invalid", "http://127.0.0.1:1")


def seconds(nodes: int, principal: PrincipalPlan | None) -> list[float]:
    """How long runs take from their submission until all of their nodes have ended."""
    found = []
    with fresh_home() as folder:
        backend = Backend(Home(folder))
        backend.keys = KeyPool()
        environ = {"PATH": os.environ["PATH"]}
        given = Submission(environ, sys.executable, Path("/"), principal=principal)
        api = EmbeddedAPI(caller=local_caller(), submission=given, backend=backend)
        with closing(backend):
            for _ in range(RUNS):
                began = time.perf_counter()
                run = start(api, "true", node_groups=[{"name": "a", "nodes": nodes}])
                assert wait(api, run.id) == "SUCCEEDED", api.run(run.id)
                found.append(time.perf_counter() - began)
                time.sleep(PAUSE)
    return found


def main() -> None:
    nodes = int(sys.argv[1]) if len(sys.argv) > 1 else 64
    for name, principal in (("without", None), ("with", PRINCIPAL)):
        first, *others = seconds(nodes, principal)
        middle = statistics.median(others)
        print(f"{nodes} nodes {name} credentials: first {first:.3f} s, others {middle:.3f} s")


if __name__ == "__main__":
    main()
