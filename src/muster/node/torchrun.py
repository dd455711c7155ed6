"""torchrun on one node, which says why it ends:

    python -m muster.node.torchrun OPTIONS --no-python PROGRAM ARGUMENT...

Torchrun itself ends with 1, whatever its ranks ended with, and with a screen of its own traceback,
behind which theirs is lost. This ends as the rank that failed first, in one line. Several ranks
write to files of their own (`rank_outputs`), if the agent has given them some.

It runs where PyTorch is installed, and is not imported elsewhere.
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

from muster.node import error_file, processes, rank_outputs
from muster.node.last_words import last_words, size_of
from muster.node.listening import await_listener


def main(argv: Sequence[str]) -> int:
    """Run it to its end. Returns what to exit with: the exit code of the rank that failed first, 1
    if a signal ended that, 128 and more if a signal ended this."""
    outputs = rank_outputs.take(os.environ)
    asked = parse_args(_literal(argv))  # type: ignore[no-untyped-call]
    _await_host(asked)
    config, program, words = config_from_args(asked)
    logs = None
    if outputs is not None and config.logs_specs is not None:
        logs = config.logs_specs = _RankLogs(config.logs_specs, outputs)
    try:
        elastic_launch(config, program)(*words)
    except ChildFailedError as error:
        if logs is None:
            return _failed(*error.get_first_failure())
        return _failed_apart(error.failures, logs)
    except SignalException as error:
        _end_ranks(int(error.sigval))
        return 128 + int(error.sigval)
    except RendezvousClosedError:
        # in words that tell a consequence from a cause, as in what follows
        return _say("connection lost: the torchrun of another node has given up")
    except (RendezvousError, DistError) as error:
        return _say("connection lost to the torchrun of the main node: %s" % error)
    return 0


def _end_ranks(number: int) -> None:
    """Torchrun does not know ranks that it was just starting when the signal came."""
    ranks = processes.children()
    for pid in ranks:
        processes.signal_group(pid, number)
    for pid in ranks:
        with contextlib.suppress(ChildProcessError):  # torchrun has reaped it meanwhile
            os.waitpid(pid, 0)


def _await_host(asked: Any) -> None:
    """Return when the main node's torchrun answers, or its time is over. Torchrun would look only
    once a second, and as all begin at the same moment, most would look too early."""
    meeting = dict(pair.split("=") for pair in asked.rdzv_conf.split(",") if pair)
    if meeting.get("is_host") != "false":
        return
    address, _, port = asked.rdzv_endpoint.rpartition(":")
    await_listener(address, int(port), float(meeting["read_timeout"]))


def _literal(argv: Sequence[str]) -> List[str]:
    """Torchrun makes `$$` into `$` in a program's arguments, and has a `${local_rank}`; whoever
    wrote them for a program that any launcher starts meant what stands there."""
    first = list(argv).index("--no-python") + 2
    return [*argv[:first], *(word.replace("$", "$$") for word in argv[first:])]


class _RankLogs(LogsSpecs):
    """Torchrun's own, but what would go to torchrun's output goes to the rank's own files."""

    def __init__(self, own: LogsSpecs, outputs: rank_outputs.RankOutputs) -> None:
        super().__init__()
        self._own = own
        self._files = outputs.files
        self.error_file = outputs.error_file
        self._written: Dict[int, int] = {}  # local rank -> bytes of stderr before it was started

    def reify(self, envs: Dict[int, Dict[str, str]]) -> LogsDest:
        """Called before ranks are started, the first time and again. Torchrun opens what is named
        here to write, and so would empty it: of a descriptor, it does not."""
        where = self._own.reify(envs)
        stdouts: Dict[int, Any] = where.stdouts
        stderrs: Dict[int, Any] = where.stderrs
        for local_rank, (stdout, stderr) in enumerate(self._files):
            self._written[local_rank] = size_of(stderr)
            stdouts[local_rank] = stdouts[local_rank] or rank_outputs.open_output(stdout)
            stderrs[local_rank] = stderrs[local_rank] or rank_outputs.open_output(stderr)
        return where

    @property
    def root_log_dir(self) -> str:
        """Where torchrun keeps the rest."""
        return self._own.root_log_dir

    def last_words(self, failure: ProcessFailure) -> str:
        """Of a rank that failed, since it was last started."""
        path, written = self._files[failure.local_rank][1], self._written[failure.local_rank]
        return last_words(path, written, killed=failure.exitcode < 0)


def _failed_apart(failures: Dict[int, ProcessFailure], logs: _RankLogs) -> int:
    """The same where ranks have files of their own: notes what the one at fault wrote."""
    said = {rank: _said(failure, logs) for rank, failure in failures.items()}
    # torchrun's times are whole seconds: a rank that lost a peer may have failed in the same one
    first = min(
        failures,
        key=lambda rank: (_follows(failures[rank], said[rank].message), failures[rank].timestamp),
    )
    code = _failed(first, failures[first])
    error_file.write(logs.error_file, _end_of(first, failures[first]), said[first])
    return code


def _said(failure: ProcessFailure, logs: _RankLogs) -> error_file.Raised:
    recorded = error_file.read(failure.error_file)
    words = logs.last_words(failure)
    return error_file.Raised(words, None) if recorded is None else recorded.or_else(words)


def _follows(failure: ProcessFailure, words: str) -> bool:
    """Whether it looks like the consequence of another rank's failure."""
    from muster.node.failure_text import TRACEBACK, is_echo

    return (failure.exitcode == -signal.SIGTERM and TRACEBACK not in words) or is_echo(words)


def _failed(rank: int, failure: ProcessFailure) -> int:
    noted = os.environ.get(error_file.VARIABLE)
    if noted and os.path.isfile(failure.error_file):  # PyTorch: @record
        with contextlib.suppress(OSError):
            shutil.copyfile(failure.error_file, noted)
    return _say(_end_of(rank, failure), max(failure.exitcode, 1))


def _end_of(rank: int, failure: ProcessFailure) -> str:
    code = failure.exitcode
    how = "exit code %d" % code if code > 0 else failure.signal_name()
    return "rank %d failed with %s, and no restart is left" % (rank, how)


def _say(text: str, code: int = 1) -> int:
    sys.stderr.write("muster: %s\n" % text)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
