"""The folder in which ADS YAML is tested."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a program, a notebook, a script and a requirements file, all empty."""
    for name in ("train.py", "book.ipynb", "run.sh", "requirements.txt"):
        (tmp_path / name).touch()
    return tmp_path
