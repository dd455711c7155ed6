"""torchrun on one node, with a short message about why it failed:

    python -m muster.node.torchrun OPTIONS --no-python PROGRAM ARGUMENT...

torchrun itself exits with 1 for any exit codes of its ranks, and prints a long traceback of
its own after theirs. This exits like the rank that failed first, with a message of one line. Each
of several ranks writes to its own files, if the agent has named some (`RANK_OUTPUTS`).

Imported only where PyTorch is installed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
from typing import Any, Dict, List, Sequence

from torch.distributed import DistError
from torch.distributed.elastic.multiprocessing import LogsDest, LogsSpecs, SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
from torch.distributed.elastic.rendezvous import RendezvousClosedError, RendezvousError
from torch.distributed.launcher.api import elastic_launch
from torch.distributed.run import config_from_args, parse_args

from muster.node import error_file, incarnation_files, processes
from muster.node.checks import await_listener
from muster.node.exit_report import stderr_tail
from muster.node.files import file_size


def main(argv: Sequence[str]) -> int:
    """Run torchrun to its end. Returns the exit code of the rank that failed first, 1 if a signal
    ended that rank, 128 + N if signal N ended this process."""
    outputs = incarnation_files.pop_rank_outputs(os.environ)
    options = parse_args(_escape_dollars(argv))  # type: ignore[no-untyped-call]
    _await_host(options)
    config, program, arguments = config_from_args(options)
    logs = None
    if outputs is not None and config.logs_specs is not None:
        logs = config.logs_specs = _RankLogs(config.logs_specs, outputs)
    try:
        elastic_launch(config, program)(*arguments)
    except ChildFailedError as error:
        if logs is None:
            return _report(*error.get_first_failure())
        return _report_with_logs(error.failures, logs)
    except SignalException as error:
        _end_ranks(int(error.sigval))
        return 128 + int(error.sigval)
    except RendezvousClosedError:
        # "connection lost" marks the failure as a consequence of another (`failure_text`)
        return _print_error("connection lost: the torchrun of another node has given up")
    except (RendezvousError, DistError) as error:
        return _print_error("connection lost to the torchrun of the main node: %s" % error)
    return 0


def _end_ranks(number: int) -> None:
    """End ranks that torchrun was just starting when the signal came, which it does not know."""
    ranks = processes.children()
    for pid in ranks:
        processes.signal_group(pid, number)
    for pid in ranks:
        with contextlib.suppress(ChildProcessError):  # torchrun has reaped it meanwhile
            os.waitpid(pid, 0)


def _await_host(options: Any) -> None:
    """Block until the main node's torchrun answers, or its timeout is over.

    torchrun tries only once a second. As all nodes start at the same moment, most of them would
    fail the first time and lose a second.
    """
    rendezvous = dict(pair.split("=") for pair in options.rdzv_conf.split(",") if pair)
    if rendezvous.get("is_host") != "false":
        return
    address, _, port = options.rdzv_endpoint.rpartition(":")
    await_listener(address, int(port), float(rendezvous["read_timeout"]))


def _escape_dollars(argv: Sequence[str]) -> List[str]:
    """Keep the program's arguments literal: torchrun replaces `$$` and `${local_rank}` in them."""
    first = list(argv).index("--no-python") + 2
    return [*argv[:first], *(word.replace("$", "$$") for word in argv[first:])]


class _RankLogs(LogsSpecs):
    """torchrun's specification, except that output which would go to torchrun's own output goes to
    the files of the rank."""

    def __init__(self, own: LogsSpecs, outputs: incarnation_files.RankOutputs) -> None:
        super().__init__()
        self._own = own
        self._files = outputs.files
        self.error_file = outputs.error_file
        self._written: Dict[int, int] = {}  # local rank -> bytes of stderr before it was started

    def reify(self, envs: Dict[int, Dict[str, str]]) -> LogsDest:
        """Called before each start of the ranks. torchrun truncates the files that are named here,
        but not those given as descriptors."""
        where = self._own.reify(envs)
        stdouts: Dict[int, Any] = where.stdouts
        stderrs: Dict[int, Any] = where.stderrs
        for local_rank, (stdout, stderr) in enumerate(self._files):
            self._written[local_rank] = file_size(stderr)
            stdouts[local_rank] = stdouts[local_rank] or incarnation_files.open_rank_output(stdout)
            stderrs[local_rank] = stderrs[local_rank] or incarnation_files.open_rank_output(stderr)
        return where

    @property
    def root_log_dir(self) -> str:
        """Where torchrun keeps its other files."""
        return self._own.root_log_dir

    def stderr_tail(self, failure: ProcessFailure) -> str:
        """The end of what a failed rank wrote since its last start."""
        path, written = self._files[failure.local_rank][1], self._written[failure.local_rank]
        return stderr_tail(path, written, killed=failure.exitcode < 0)


def _report_with_logs(failures: Dict[int, ProcessFailure], logs: _RankLogs) -> int:
    """Like `_report`, where each rank has its own files: also records the error of the rank at
    fault."""
    errors = {rank: _error_of(failure, logs) for rank, failure in failures.items()}
    # torchrun's times are whole seconds: a rank that lost a peer may have failed in the same one
    first = min(
        failures,
        key=lambda rank: (
            _is_consequence(failures[rank], errors[rank].message),
            failures[rank].timestamp,
        ),
    )
    code = _report(first, failures[first])
    error_file.write(logs.error_file, _headline(first, failures[first]), errors[first])
    return code


def _error_of(failure: ProcessFailure, logs: _RankLogs) -> error_file.RecordedError:
    recorded = error_file.read(failure.error_file)
    tail = logs.stderr_tail(failure)
    if recorded is None:
        return error_file.RecordedError(tail, None)
    return recorded.with_default(tail)


def _is_consequence(failure: ProcessFailure, text: str) -> bool:
    """Whether it looks like the consequence of another rank's failure."""
    from muster.node.failure_text import TRACEBACK, looks_like_consequence

    return (
        failure.exitcode == -signal.SIGTERM and TRACEBACK not in text
    ) or looks_like_consequence(text)


def _report(rank: int, failure: ProcessFailure) -> int:
    """Print the failure; pass on the file in which the rank recorded its error. Returns the exit
    code."""
    own_file = os.environ.get(error_file.VARIABLE)
    if own_file and os.path.isfile(failure.error_file):  # PyTorch: @record
        with contextlib.suppress(OSError):
            shutil.copyfile(failure.error_file, own_file)
    return _print_error(_headline(rank, failure), max(failure.exitcode, 1))


def _headline(rank: int, failure: ProcessFailure) -> str:
    code = failure.exitcode
    how = "exit code %d" % code if code > 0 else failure.signal_name()
    return "rank %d failed with %s, and no restart is left" % (rank, how)


def _print_error(text: str, code: int = 1) -> int:
    sys.stderr.write("muster: %s\n" % text)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
