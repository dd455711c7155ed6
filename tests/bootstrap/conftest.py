"""A work directory in a folder, and the nodes of a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.bootstrap.workdir import WorkDir
from support.bootstrap import Nodes, NodesOf


@pytest.fixture
def workdir(tmp_path: Path) -> WorkDir:
    folder = WorkDir(str(tmp_path), "job")
    folder.make()
    return folder


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
