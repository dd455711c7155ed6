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
from functools import partial
from pathlib import Path
from typing import NoReturn

from muster.assemble.context import TERMINATED, open_context
from muster.assemble.job import arranged_job, check_program
from muster.assemble.main_node import live_main
from muster.assemble.other_node import live_other
from muster.assemble.parameters import Parameters
from muster.assemble.stopping import Stopped
from muster.assemble.workdir import WorkDir
from muster.errors import EXIT_OK, EXIT_RUN_FAILED


def live(parameters: Parameters, environ: Mapping[str, str], say: Callable[[str], None]) -> int:
    """Join the cluster, work in it, leave it. Returns the exit code (errors.EXIT_*, or that of
    the program on the main node). say: for progress. Raises InvalidInput."""
    workdir = WorkDir(parameters.work_dir, parameters.job)
    arranged = arranged_job(parameters, environ)
    folder = Path(tempfile.mkdtemp(prefix="muster-"))
    context_of = partial(open_context, environ, workdir, folder, say)
    former = signal.signal(signal.SIGTERM, _leave)
    try:
        if parameters.mode == "MAIN":
            with context_of(parameters) as context:
                return live_main(context)
        check_program(parameters, arranged)  # before anybody is waited for
        return live_other(parameters, workdir, say, context_of)
    except Stopped as error:
        say(str(error))
        return EXIT_OK if error.well else EXIT_RUN_FAILED
    finally:
        signal.signal(signal.SIGTERM, former)
        shutil.rmtree(folder, ignore_errors=True)


def _leave(_number: int, _frame: object) -> NoReturn:
    """Told to end while we wait for others."""
    sys.exit(TERMINATED)
