"""Paths on the nodes of runs as text: `RUN:RANK:PATH`. Pure."""

from __future__ import annotations

from msgspec import Struct


class NodePath(Struct, frozen=True):
    """A path on a node. A relative one starts in the node's working directory."""

    #: Names the run.
    run: str
    #: None: the run's only node.
    rank: int | None
    path: str

    def __str__(self) -> str:
        rank = "" if self.rank is None else f"{self.rank}:"
        return f"{self.run}:{rank}{self.path}"


def parse_path(text: str) -> NodePath | str:
    """`RUN:RANK:PATH` or `RUN:PATH`; a path on this machine if no colon comes before the first
    slash. Pure."""
    run, colon, rest = text.partition(":")
    if not (run and colon) or "/" in run:
        return text
    rank, colon, path = rest.partition(":")
    if colon and rank.isdecimal():
        return NodePath(run, int(rank), path)
    return NodePath(run, None, rest)
