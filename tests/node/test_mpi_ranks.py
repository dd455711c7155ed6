from __future__ import annotations

import os
import subprocess
from pathlib import Path

from muster.node.mpi_ranks import LOST, RankExits


def test_reports_are_read_among_other_lines(tmp_path: Path) -> None:
    """Any program of the node can write to the FIFO."""
    ends = RankExits(str(tmp_path))
    with open(ends.path, "wb") as fifo:
        fifo.write(b"\n began 12\nx\n\xff ended 1\n1 ended\n1 ended 99999999999\n3 ended 4\n")
    assert ends.read() == [(3, 4)]
    assert ends.read() == []


def test_a_rank_that_is_restarted_is_lost_once(tmp_path: Path) -> None:
    ends = RankExits(str(tmp_path))
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as shell:
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(2):
            with open(ends.path, "w") as fifo:
                fifo.write(f"0 started {shell.pid}\n")
            assert ends.read() == []
        assert len(os.listdir("/proc/self/fd")) == before + 1
        shell.kill()
    assert ends.read() == [(0, LOST)]
    assert ends.read() == []
