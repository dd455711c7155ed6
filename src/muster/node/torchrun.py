"""torchrun on one node, which says why it ends:

    python -m muster.node.torchrun OPTIONS --no-python PROGRAM ARGUMENT...

Torchrun itself ends with 1, whatever its ranks ended with, and with a screen of its own traceback,
behind which theirs is lost. This ends as the rank that failed first, in one line.

It runs where PyTorch is installed, and is not imported elsewhere.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from typing import Any, List, Sequence

from torch.distributed import DistError
from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.elastic.rendezvous import RendezvousClosedError, RendezvousError
from torch.distributed.run import parse_args, run

from muster.node import error_file, processes
from muster.node.listening import await_listener


def main(argv: Sequence[str]) -> int:
    """Run it to its end. Returns what to exit with: the exit code of the rank that failed first, 1
    if a signal ended that, 128 and more if a signal ended this."""
    asked = parse_args(_literal(argv))  # type: ignore[no-untyped-call]
    _await_host(asked)
    try:
        run(asked)  # type: ignore[no-untyped-call]
    except ChildFailedError as error:
        return _failed(*error.get_first_failure())
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


def _failed(rank: int, failure: Any) -> int:
    noted = os.environ.get(error_file.VARIABLE)
    if noted and os.path.isfile(failure.error_file):  # PyTorch: @record
        with contextlib.suppress(OSError):
            shutil.copyfile(failure.error_file, noted)
    code = failure.exitcode
    how = "exit code %d" % code if code > 0 else failure.signal_name()
    return _say("rank %d failed with %s, and no restart is left" % (rank, how), max(code, 1))


def _say(text: str, code: int = 1) -> int:
    sys.stderr.write("muster: %s\n" % text)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
