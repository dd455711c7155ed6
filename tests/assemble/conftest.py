"""A work directory in a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.assemble.workdir import WorkDir


@pytest.fixture
def workdir(tmp_path: Path) -> WorkDir:
    made = WorkDir(str(tmp_path), "job")
    made.make()
    return made
