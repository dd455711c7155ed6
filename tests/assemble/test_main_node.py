"""How a main node ends where its store does not work any more."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

from muster.assemble.beats import Heart
from muster.assemble.context import TERMINATED, Context
from muster.assemble.job import arranged_job
from muster.assemble.main_node import Lead
from muster.assemble.members import Assembly
from muster.assemble.parameters import Parameters
from muster.assemble.ports import OwnPorts
from muster.assemble.running import EVICTED, NodeEnd
from muster.assemble.workdir import BEAT, WorkDir


def test_the_result_stays_what_it_is(tmp_path: Path) -> None:
    said: list[str] = []
    waited: list[float] = []
    parameters = Parameters("MAIN", str(tmp_path / "shared"), "dask", "job", "m", entry_point="a")
    arranged = arranged_job(parameters, {})
    workdir = WorkDir(parameters.work_dir, parameters.job, waited.append)
    workdir.make()
    with closing(OwnPorts([], said.append, main=True)) as ports:
        context = Context(parameters, arranged, workdir, ports, tmp_path, {}, said.append)
        assembly = Assembly("ours", "t", (context.member(),))
        lead = Lead(context, assembly, Heart(workdir, BEAT, "ours"))
        shutil.rmtree(tmp_path / "shared")
        (tmp_path / "shared").write_text("no folder any more")

        lead.on_done()
        assert len(said) == 1 and "cannot be" in said[0]
        assert waited  # it was not given up at once
        assert lead.finish(NodeEnd(0)) == 0
        assert lead.finish(NodeEnd(7)) == 7
        assert lead.finish(NodeEnd(143, told=EVICTED)) == TERMINATED
