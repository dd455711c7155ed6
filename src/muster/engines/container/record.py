"""What the containers of a run were made of, kept in the run's folder: a later supervisor makes the
same, also if a tag has moved, or the profile has changed meanwhile."""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import Struct

from muster.node.files import read_regular, replace_file
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


class Record(Struct, frozen=True):
    """The containers of a run."""

    #: The path of the engine's socket.
    socket: str
    #: By the names that the job gives them.
    images: dict[str, Image]


def record_file(folder: RunDir) -> Path:
    """Where it is."""
    return folder.containers / "record.json"


def read_record(folder: RunDir) -> Record | None:
    """None if there is none. Raises OSError, also if it is damaged."""
    path = record_file(folder)
    try:
        return msgspec.json.decode(read_regular(path), type=Record)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise OSError(f"{path} is damaged: {error}") from None


def write_record(folder: RunDir, record: Record) -> None:
    """Write it. Raises OSError."""
    folder.containers.mkdir(mode=0o700, exist_ok=True)
    replace_file(record_file(folder), msgspec.json.encode(record), 0o600)
