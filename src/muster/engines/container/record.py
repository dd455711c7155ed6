"""What the containers of a run were made of, kept in the run's folder: a later supervisor makes the
same, also if a tag has moved, or the profile has changed meanwhile."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from muster.engines.container.gpus import Way
from muster.storage.home import RunDir


class Image(Struct, frozen=True):
    """An image as it was found."""

    #: Of its content: `sha256:` and digits.
    id: str
    #: By which its registry knows it, as in NAME@sha256:...; "" if it comes from none.
    digest: str = ""
    #: As in a Dockerfile; "": root.
    user: str = ""
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    working_dir: str = ""
    #: LD_PRELOAD in its environment.
    preload: str = ""


class Record(Struct, frozen=True):
    """The containers of a run."""

    #: The path of the engine's socket.
    socket: str
    #: Whether the engine runs as the submitter, see `sockets.is_rootless`.
    rootless: bool
    #: By the names that the job gives them.
    images: dict[str, Image]
    #: How it is asked for GPUs.
    gpu_way: Way = "nvidia"


def record_file(folder: RunDir) -> Path:
    """Where it is."""
    return folder.containers / "record.json"
