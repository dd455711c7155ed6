"""The outputs of a run: the files that its programs keep with it."""

from __future__ import annotations

from msgspec import Struct


class OutputFile(Struct, frozen=True):
    """A file, or a symbolic link, that a program wrote to its output directory."""

    #: The node in whose $MUSTER_OUTPUTS it is; None: it is in $MUSTER_RUN_OUTPUTS, which the nodes
    #: share.
    rank: int | None
    #: Its path in this directory, with slashes.
    path: str
    #: In bytes.
    size: int
    #: Epoch seconds.
    modified: float
    #: Its permissions: the lowest nine bits of its mode.
    mode: int
    #: What a symbolic link points to; None for files.
    link: str | None = None
    #: Whether it is a link to something outside the outputs of the run, which cannot be read.
    leaves_outputs: bool = False
    #: What a link in a copy of all outputs points to; None for files, and for links that leave.
    link_in_copy: str | None = None


class OutputList(Struct, frozen=True):
    """The outputs of a run."""

    #: Their folder on Muster's machine, for people who use that machine.
    folder: str
    #: Those that the nodes share, then by rank and path.
    files: tuple[OutputFile, ...]
