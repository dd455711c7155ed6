"""What the nodes of runs use, and how to add it up."""

from muster.node.counters import Counters
from muster.storage.usage import NodeUsage, grown

__all__ = ["Counters", "NodeUsage", "grown"]
