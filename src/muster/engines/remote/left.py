"""Sentences on what a run leaves where it was, as it cannot be removed."""

from __future__ import annotations

from collections.abc import Sequence

from muster.describe.words import named

#: Things that a sentence names.
_MOST_NAMED = 3


def left(names: Sequence[str], place: str, why: str, remedy: str) -> str:
    """Says that these stay where they are. place: a phrase. remedy: how a user removes them, as a
    clause."""
    verb = "is" if len(names) == 1 else "are"
    return f"{named(names, _MOST_NAMED)} {verb} left {place}: {why}; {remedy}"


def delayed(names: Sequence[str], why: str) -> str:
    """Says that these are not removed yet."""
    return f"{named(names, _MOST_NAMED)} cannot be deleted: {why}; this is tried again"


def servers_left(hosts: Sequence[tuple[int, str]]) -> str:
    """Says that servers stay on hosts. hosts: the ranks of their nodes, which have ended, and where
    they are. A rank of -1: it is not known."""
    ranks = [str(rank) for rank, _ in hosts if rank >= 0]
    nodes = f"node{'s' * (len(ranks) > 1)} {named(ranks, _MOST_NAMED)}" if ranks else "a node"
    where = named([*dict.fromkeys(host for _, host in hosts)], _MOST_NAMED)
    verb = "was" if len(hosts) == 1 else "were"
    return f"the node server of {nodes} {verb} left on {where}, which cannot be reached"


def deleted_with_run(run_name: str) -> str:
    """The remedy where Muster removes what is left when the run is deleted."""
    return f"`muster rm {run_name}` tries it again"
