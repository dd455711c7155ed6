"""The main node, when its work directory stops working."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

from muster.bootstrap.agent_process import TERMINATION, NodeExit
from muster.bootstrap.context import TERMINATED, Context
from muster.bootstrap.heartbeats import Heartbeat
from muster.bootstrap.job import arranged_job
from muster.bootstrap.main import MainNode
from muster.bootstrap.network import ReservedPorts
from muster.bootstrap.parameters import Parameters
from muster.bootstrap.roster import Roster
from muster.bootstrap.workdir import HEARTBEAT, WorkDir


def test_the_exit_code_does_not_depend_on_the_work_directory(tmp_path: Path) -> None:
    printed: list[str] = []
    waits: list[float] = []
    work_dir = str(tmp_path / "shared")
    parameters = Parameters("MAIN", work_dir, "dask", "job", "m", worker_count=0, entry_point="a")
    arranged = arranged_job(parameters, {})
    workdir = WorkDir(parameters.work_dir, parameters.job, waits.append)
    workdir.make()
    with closing(ReservedPorts([], printed.append, main=True)) as ports:
        context = Context(parameters, arranged, workdir, ports, tmp_path, {}, printed.append)
        roster = Roster("ours", "t", (context.member(),))
        node = MainNode(context, roster, Heartbeat(workdir, HEARTBEAT, "ours"))
        shutil.rmtree(tmp_path / "shared")
        (tmp_path / "shared").write_text("not a folder")

        node.on_success()
        assert len(printed) == 1 and "cannot be" in printed[0]
        assert waits, "the operation was retried"
        assert node.finish(NodeExit(0)) == 0
        assert node.finish(NodeExit(7)) == 7
        assert node.finish(NodeExit(143, stopped=TERMINATION)) == TERMINATED
