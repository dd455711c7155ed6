"""Addresses of nodes on one machine.

A shared network gives each run its own stretch of 127/8, so that two runs never bind the same
address; a network of the run's own is nobody else's, so every run may use the same.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from muster.errors import InvalidInput, Problem
from muster.frameworks.base import Network

#: A bridge has this many ports, less one for comfort.
MAX_OWN_NODES = 1000

_FIRST = 1 << 16  # 127.0.x.y is left to other programs
_LAST = (1 << 24) - 256


def allot(network: Network, nodes: int) -> Sequence[str]:
    """An address for each of `nodes` nodes. Raises InvalidInput if the network cannot hold them."""
    if network != "shared":
        if nodes > MAX_OWN_NODES:
            raise InvalidInput(
                Problem(
                    "network",
                    f"network: {network} holds {MAX_OWN_NODES} nodes, the run has {nodes}",
                    "use network: shared",
                )
            )
        return [f"10.77.{(rank + 1) >> 8}.{(rank + 1) & 255}" for rank in range(nodes)]
    if not sys.platform.startswith("linux"):
        return ["127.0.0.1"] * nodes  # other systems answer on this loopback address only
    # 16 million addresses and a random start: two live runs of different users, whose stores do
    # not know each other, meet about as often as lightning
    chosen = int.from_bytes(os.urandom(4)) % (_LAST - nodes - _FIRST)
    start = (_FIRST + chosen) & ~0xFF
    return [_dotted(start + rank + 1) for rank in range(nodes)]


def _dotted(offset: int) -> str:
    return f"127.{offset >> 16 & 255}.{offset >> 8 & 255}.{offset & 255}"
