"""A work directory in a folder, and nodes that meet in one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.assemble.workdir import WorkDir
from support.assembled import Nodes, NodesOf


@pytest.fixture
def workdir(tmp_path: Path) -> WorkDir:
    made = WorkDir(str(tmp_path), "job")
    made.make()
    return made


@pytest.fixture
def nodes_at(tmp_path: Path) -> Iterator[NodesOf]:
    made: list[Nodes] = []

    def make(work_dir: str = "", environ: dict[str, str] | None = None) -> Nodes:
        made.append(Nodes(tmp_path, work_dir or str(tmp_path / "shared"), environ or {}))
        return made[-1]

    yield make
    for nodes in made:
        for process in nodes.processes:
            if process.poll() is None:
                process.kill()
            process.communicate()


@pytest.fixture
def nodes(nodes_at: NodesOf) -> Nodes:
    return nodes_at("")
