"""A Dask worker that waits for its scheduler without a time limit:

    python -m muster.node.dask worker tcp://10.0.0.1:8786 OPTION...

Dask itself gives up after 30 seconds. While the scheduler starts, this imports what the worker
needs: imports take most of the time in which a cluster starts, on both sides.

Imported only where Dask is installed.
"""

from __future__ import annotations

import math
import sys
from typing import List

from muster.node.checks import await_listener

#: Seconds until a message says that the scheduler does not answer.
_MESSAGE_AFTER = 30.0


def await_scheduler(address: str, message_after: float = _MESSAGE_AFTER) -> None:
    """Block until the scheduler answers. address: in Dask's notation. message_after: seconds."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    why = await_listener(host, int(port), message_after)
    if why:
        sys.stderr.write("muster: no answer yet from Dask's scheduler, %s: %s\n" % (address, why))
        await_listener(host, int(port), math.inf)


def main(argv: List[str]) -> None:
    """Become `dask worker ADDRESS OPTION...`."""
    from distributed.cli.dask_worker import main as dask_worker

    await_scheduler(argv[1])
    dask_worker(argv[1:], prog_name="dask worker")


if __name__ == "__main__":
    main(sys.argv[1:])
