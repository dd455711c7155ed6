"""The node program: `muster-node.pyz` (`engines/node_program.py`), and `python -m muster.node`."""

from __future__ import annotations

import os
import sys
from typing import Callable, Dict, Sequence, Tuple

from muster import __version__
from muster.node.greeting import PROTOCOL

_USAGE = 2  # the exit code for wrong words
_ABOUT = """\
usage: muster-node COMMAND

The node side of Muster in one file, for machines on which Muster is not
installed. It needs Python 3.9 or newer, and no packages. Print it with
`muster node-program`, on a machine with Muster of the same protocol.

"""


def main(argv: Sequence[str]) -> int:
    """Run a command, given by the words after the program's name. Returns the exit code: 2 if the
    words are wrong, 1 if standard output cannot be written."""
    if not argv:
        return _refuse("a command is missing")
    name = _SHORT.get(argv[0], argv[0])
    if name not in _COMMANDS:
        return _refuse("unknown command %.100r" % argv[0])
    run, _ = _COMMANDS[name]
    return run(argv[1:])


def _help(words: Sequence[str]) -> int:
    if words:
        return _refuse("--help takes no arguments")
    lines = ["  %-11s%s\n" % (name, summary) for name, (_, summary) in _COMMANDS.items()]
    return _print(_ABOUT + "".join(lines))


def _version(words: Sequence[str]) -> int:
    if words:
        return _refuse("--version takes no arguments")
    return _print("muster-node %s (protocol %d)\n" % (__version__, PROTOCOL))


def _serve(words: Sequence[str]) -> int:
    import gc

    gc.disable()  # what is imported stays
    from muster.node.serve import serve_command  # the other commands need none of it

    gc.freeze()  # so that agents, which are forked, share it
    gc.enable()
    return serve_command(words, __version__)


def _serve_pod(words: Sequence[str]) -> int:
    import gc

    gc.disable()  # what is imported stays
    from muster.node.pod import serve_pod_command

    gc.freeze()  # so that the server and agents, which are forked, share it
    gc.enable()
    return serve_pod_command(words, __version__)


def _open(words: Sequence[str]) -> int:
    import gc

    gc.disable()  # what is imported stays
    from muster.node.bridge import open_command

    gc.freeze()  # so that processes that are forked share it
    gc.enable()
    return open_command(words, __version__)


def _connect(words: Sequence[str]) -> int:
    from muster.node.bridge import connect_command

    return connect_command(words)


def _end(words: Sequence[str]) -> int:
    from muster.node.serve import end_command

    return end_command(words)


def _facts(words: Sequence[str]) -> int:
    if len(words) > 1:
        return _refuse("facts takes one argument: a folder")
    import json

    from muster.node.bridge import check_folder
    from muster.node.control_groups import usable_limits
    from muster.node.machine import boot_id, facts
    from muster.node.reservation import CannotReserve

    try:
        for folder in words:
            check_folder(os.path.realpath(os.path.expanduser(folder)))
    except CannotReserve as error:
        _complain(str(error))
        return 1
    found = facts()._replace(limits=usable_limits(), boot=boot_id())
    return _print(json.dumps(found._asdict()) + "\n")


#: Command -> (what runs it with the words after it and returns the exit code, summary).
_COMMANDS: Dict[str, Tuple[Callable[[Sequence[str]], int], str]] = {
    "serve": (_serve, "Serve the node of a folder, in this process."),
    "serve-pod": (_serve_pod, "Serve the node of this pod in a Kubernetes cluster."),
    "open": (_open, "Connect to the server of a folder; start it if need be."),
    "connect": (_connect, "Connect to the server of a folder, if one runs."),
    "facts": (_facts, "Show what this machine has, as JSON; try to use a folder."),
    "end": (_end, "End the node of a folder, and remove the folder."),
    "--version": (_version, "Show the versions of Muster and of the protocol."),
    "--help": (_help, "Show this text."),
}
_SHORT = {"-V": "--version", "-h": "--help"}


def _refuse(text: str) -> int:
    _complain("%s; see `muster-node --help`" % text)
    return _USAGE


def _print(text: str) -> int:
    try:
        os.write(1, text.encode())  # `sys.stdout` would try again at the exit, or is None if closed
    except OSError as error:
        _complain("cannot write to standard output: %s" % error.strerror)
        return 1
    return 0


def _complain(text: str) -> None:
    if sys.stderr is not None:  # as it is if it was closed
        sys.stderr.write("muster-node: %s\n" % text)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
