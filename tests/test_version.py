"""The version, which is written in two places."""

from __future__ import annotations

import tomllib
from pathlib import Path

import muster

ROOT = Path(__file__).parents[1]


def test_the_package_and_its_metadata_have_the_same_version() -> None:
    """Agents and supervisors say `__version__`; `muster --version` prints that of the metadata."""
    data = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert muster.__version__ == data["project"]["version"]
