"""What an engine keeps about a run in the run's folder, where a later supervisor finds it."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from muster.node.files import read_regular, replace_file

R = TypeVar("R", bound=Struct)


def read_record(path: Path, kind: type[R]) -> R | None:
    """None if there is none. Raises OSError, also if it is damaged: nodes may run that nobody
    knows."""
    try:
        return msgspec.json.decode(read_regular(path), type=kind)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise OSError(f"{path} is damaged: {error}") from None


def write_record(path: Path, record: Struct) -> None:
    """Write it. Raises OSError."""
    replace_file(path, msgspec.json.encode(record), 0o600)
