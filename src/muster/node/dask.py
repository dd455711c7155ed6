"""A worker of Dask's that waits for its scheduler, for as long as that takes:

    python -m muster.node.dask worker tcp://10.0.0.1:8786 OPTION...

Dask itself would try for 30 seconds. Meanwhile this imports what the worker needs: most of what a
cluster takes to come up is imports, the scheduler's as well as the workers'.

It runs where Dask is installed, and is not imported elsewhere.
"""

from __future__ import annotations

import math
import sys
from typing import List

from muster.node.listening import await_listener

#: Seconds after which it says whom it waits for.
_SAY = 30.0


def await_scheduler(address: str, say: float = _SAY) -> None:
    """Returns once it answers. address: as Dask writes it. say: seconds until somebody is told."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    why = await_listener(host, int(port), say)
    if why:
        sys.stderr.write("muster: no answer yet from Dask's scheduler, %s: %s\n" % (address, why))
        await_listener(host, int(port), math.inf)


def main(words: List[str]) -> None:
    """Become `dask worker ADDRESS OPTION...`."""
    from distributed.cli.dask_worker import main as dask_worker

    await_scheduler(words[1])
    dask_worker(words[1:], prog_name="dask worker")


if __name__ == "__main__":
    main(sys.argv[1:])
