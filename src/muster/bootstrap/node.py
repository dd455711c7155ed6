"""One node of a cluster, from its parameters to its exit code.

A node ends when the program of an ephemeral cluster has ended, when a stop file appears, when the
time to live is over, when the main node or the whole cluster is not ready in time, and when a
required node fails or stops sending heartbeats.
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

from muster.bootstrap.context import TERMINATED, open_context
from muster.bootstrap.job import arranged_job, check_program
from muster.bootstrap.main import run_main
from muster.bootstrap.parameters import Parameters
from muster.bootstrap.stop_file import Stopped
from muster.bootstrap.workdir import WorkDir
from muster.bootstrap.worker import run_worker
from muster.errors import EXIT_OK, EXIT_RUN_FAILED


def run_node(parameters: Parameters, environ: Mapping[str, str], log: Callable[[str], None]) -> int:
    """Join the cluster, run this node's part, and leave.

    log: prints a message about progress. Returns the exit code: errors.EXIT_*, or that of the
    program on the main node. Raises InvalidInput, EngineError.
    """
    workdir = WorkDir(parameters.work_dir, parameters.job)
    arranged = arranged_job(parameters, environ)
    folder = Path(tempfile.mkdtemp(prefix="muster-"))
    context_of = partial(open_context, environ, workdir, folder, log)
    previous = signal.signal(signal.SIGTERM, _exit_on_signal)
    try:
        if parameters.mode == "MAIN":
            with context_of(parameters) as context:
                return run_main(context)
        check_program(parameters, arranged)  # before waiting for the main node
        return run_worker(parameters, workdir, log, context_of)
    except Stopped as error:
        log(str(error))
        return EXIT_OK if error.success else EXIT_RUN_FAILED
    finally:
        signal.signal(signal.SIGTERM, previous)
        shutil.rmtree(folder, ignore_errors=True)


def _exit_on_signal(_number: int, _frame: object) -> NoReturn:
    """SIGTERM while the node waits for others."""
    sys.exit(TERMINATED)
