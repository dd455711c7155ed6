"""Keep a node server running in a child process, as the first program of what the infrastructure
has started for a node: a job run of OCI, or a pod.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from typing import TYPE_CHECKING, Any, Mapping, Optional

from muster.node.files import remove_tree
from muster.node.serve import SERVED, serve_command

if TYPE_CHECKING:
    from muster.node.tunnel_process import TunnelProcess

#: Seconds until a server that was killed is started again.
_RESTART_PAUSE = 1.0


def keep_serving(
    folder: str,
    told: Mapping[str, str],
    version: str,
    tunnel: Optional[TunnelProcess] = None,
) -> int:
    """Serve in a child process, and again if that was killed: it finds its node. Returns the exit
    code: that of the server, or 128 + N if this process was told to end by signal N. What has
    started it must not take the node's work for done, nor for failed. told: variables for the
    server (`serve.SETTINGS`, `serve.TOKEN`). tunnel: what carries its connections, if anything
    does."""
    child, ended, code = 0, 0, 0

    def terminate(number: int, _frame: object) -> None:
        nonlocal ended
        ended = number
        if child:
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.kill(child, number)

    blocked = {signal.SIGTERM, signal.SIGINT}
    for one in blocked:
        signal.signal(one, terminate)
    while True:
        signal.pthread_sigmask(signal.SIG_BLOCK, blocked)  # until the child is known
        if ended:  # while there was no child
            break
        child = os.fork()
        if child == 0:
            if tunnel is not None:
                tunnel.leave()
            _serve_and_exit(folder, told, version, blocked)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, blocked)
        code = _exit_code_of(child, tunnel)
        child = 0
        if code >= 0 or ended:
            break
        sys.stderr.write("muster: the node server was ended by signal %d; again\n" % -code)
        time.sleep(_RESTART_PAUSE)
    if ended and code != SERVED:
        remove_tree(folder)  # nobody needs its files
    return 128 + ended if ended else code


def _exit_code_of(child: int, tunnel: Optional[TunnelProcess]) -> int:
    """Wait for the end of a child, and return its exit code. The process of the tunnel is
    started again if it ends before."""
    while True:
        pid, status = os.waitpid(-1, 0)  # as process 1 of a container, it may have others
        if pid == child:
            return os.waitstatus_to_exitcode(status)
        if tunnel is not None and pid == tunnel.pid:
            time.sleep(_RESTART_PAUSE)
            tunnel.start()


def _serve_and_exit(folder: str, told: Mapping[str, str], version: str, blocked: Any) -> None:
    """In a forked process."""
    code = 1
    try:
        for one in blocked:
            signal.signal(one, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, blocked)
        os.environ.update(told)
        code = serve_command([folder], version)
    except BaseException as error:  # noqa: BLE001
        import traceback  # few fail

        traceback.print_exc(file=sys.stderr)
        # last: what is read of its log is the cause
        sys.stderr.write("muster: the node server has failed: %r\n" % error)
    finally:
        sys.stderr.flush()
        os._exit(code)
