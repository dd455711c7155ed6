"""One node of a cluster that assembles itself, from its parameters to its exit code.

It tears down when the program of an ephemeral cluster has ended, when a `stop` file is found, when
the time to live is over, when the main node does not come in time, and when the cluster is not
ready in time; and when a node that the others cannot do without is gone without a word.
"""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NoReturn

from muster.assemble.context import TERMINATED, Context
from muster.assemble.job import arranged_job
from muster.assemble.main_node import live_main
from muster.assemble.other_node import live_other
from muster.assemble.parameters import Parameters
from muster.assemble.ports import OwnPorts
from muster.assemble.stopping import Stopped
from muster.assemble.workdir import WorkDir
from muster.errors import EXIT_OK, EXIT_RUN_FAILED


def live(parameters: Parameters, environ: Mapping[str, str], say: Callable[[str], None]) -> int:
    """Join the cluster, work in it, leave it. Returns the exit code (errors.EXIT_*, or that of
    the program on the main node). say: for progress. Raises InvalidInput."""
    arranged = arranged_job(parameters, environ)
    workdir = WorkDir(parameters.work_dir, parameters.job)
    ports = OwnPorts(arranged.setup.ports, say, main=parameters.mode == "MAIN")
    folder = Path(tempfile.mkdtemp(prefix="muster-"))
    context = Context(parameters, arranged, workdir, ports, folder, environ, say)
    former = signal.signal(signal.SIGTERM, _leave)
    try:
        return live_main(context) if parameters.mode == "MAIN" else live_other(context)
    except Stopped as error:
        say(str(error))
        return EXIT_OK if error.well else EXIT_RUN_FAILED
    finally:
        signal.signal(signal.SIGTERM, former)
        ports.close()
        shutil.rmtree(folder, ignore_errors=True)


def _leave(_number: int, _frame: object) -> NoReturn:
    """Told to end while we wait for others."""
    sys.exit(TERMINATED)
