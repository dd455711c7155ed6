"""The folder that nodes share, and the node program there."""

from __future__ import annotations

from pathlib import Path

from muster.engines.node_program import node_program, program_key
from muster.engines.slurm.profile import SlurmProfile
from muster.node.files import replace_file


def folder_of(profile: SlurmProfile, home: Path) -> Path:
    """The folder that nodes share: with the node program, and a folder for each run. home:
    MUSTER_HOME."""
    return home / "slurm" if profile.folder is None else Path(profile.folder)


def provide_program(folder: Path) -> Path:
    """The node program in a folder that nodes share. Raises OSError."""
    path = folder / f"program-{program_key()}.pyz"
    if not path.exists():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(path, node_program(), 0o600)
    return path
