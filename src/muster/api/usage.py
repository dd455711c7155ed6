"""What the nodes of runs use, and how to add it up."""

from muster.storage.usage import NOTHING, Counters, NodeUsage, add

__all__ = ["NOTHING", "Counters", "NodeUsage", "add"]
