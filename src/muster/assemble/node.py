"""One node of a cluster that assembles itself, from its parameters to its exit code.

It tears down when the program of an ephemeral cluster has ended, when a `stop` file is found, when
the time to live is over, when the main node does not come in time, and when the cluster is not
ready in time; and when the main node is gone without a word.
"""

from __future__ import annotations

import secrets
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NoReturn

from msgspec import Struct

from muster.assemble.address import own_address
from muster.assemble.job import arranged_job
from muster.assemble.meeting import (
    Heart,
    Pulse,
    Stopped,
    gather,
    join,
    looks,
    lost_members,
    say_ended,
    say_stop,
    still_there,
    stop_reason,
    stopped_well,
    take_place,
)
from muster.assemble.members import Assembly, Member
from muster.assemble.parameters import Parameters
from muster.assemble.ports import OwnPorts
from muster.assemble.running import TOLD, NodeEnd, Running, launch_of
from muster.assemble.workdir import STOP, WorkDir
from muster.errors import EXIT_OK, EXIT_PLATFORM, EXIT_RUN_FAILED, EngineError
from muster.frameworks.base import RoleSetup
from muster.plan.arrange import Arranged

#: How long a node that fails looks whether the cluster is ending anyway (seconds).
_AFTERWARDS = 10.0
_TERMINATED = 128 + signal.SIGTERM


class _Context(Struct, frozen=True):
    parameters: Parameters
    arranged: Arranged
    workdir: WorkDir
    ports: OwnPorts
    folder: Path
    environ: Mapping[str, str]
    say: Callable[[str], None]


def live(parameters: Parameters, environ: Mapping[str, str], say: Callable[[str], None]) -> int:
    """Join the cluster, work in it, leave it. Returns the exit code (errors.EXIT_*, or that of
    the program on the main node). say: for progress. Raises InvalidInput."""
    arranged = arranged_job(parameters, environ)
    workdir = WorkDir(parameters.work_dir, parameters.job)
    ports = OwnPorts(arranged.setup.ports, say, main=parameters.mode == "MAIN")
    folder = Path(tempfile.mkdtemp(prefix="muster-"))
    context = _Context(parameters, arranged, workdir, ports, folder, environ, say)
    former = signal.signal(signal.SIGTERM, _leave)
    try:
        return _live_main(context) if parameters.mode == "MAIN" else _live_other(context)
    except Stopped as error:
        say(str(error))
        return EXIT_OK if stopped_well(workdir.read(STOP)) else EXIT_RUN_FAILED
    finally:
        signal.signal(signal.SIGTERM, former)
        ports.close()
        shutil.rmtree(folder, ignore_errors=True)


def _leave(_number: int, _frame: object) -> NoReturn:
    """Told to end while we wait for others."""
    sys.exit(_TERMINATED)


def _live_main(context: _Context) -> int:
    parameters, workdir, say = context.parameters, context.workdir, context.say
    me = _member(context)
    take_place(workdir)
    cluster = secrets.token_hex(5)
    heart = Heart(workdir, cluster)
    say(f"main node at {me.address}, in {workdir.place}; waiting for {parameters.others} more")
    try:
        token = secrets.token_hex(16)
        assembly = gather(workdir, me, parameters, cluster, token, heart, say)
        say(f"all {len(assembly.members)} nodes have come")
        end = _work_as_main(context, assembly, heart)
        if not end.told and end.exit_code == 0:
            end = _await_others(context, assembly, heart)
    except Stopped:
        raise
    except EngineError as error:
        say_stop(workdir, str(error), failed=True)
        raise
    except BaseException:
        say_stop(workdir, "the main node was told to end", failed=True)
        raise
    evicted = end.told == TOLD  # what it was for is not done
    failed = evicted or (not end.told and end.exit_code != 0)
    why = end.told or _outcome(end)
    if failed:
        others = lost_members(workdir, assembly, assembly.members)
        why += "".join(f"\n  {lost}" for _, lost in others)
    say_stop(workdir, why, failed=failed)
    say(why)
    if evicted:
        return _TERMINATED
    if end.told:
        return EXIT_OK if stopped_well(workdir.read(STOP)) else EXIT_RUN_FAILED
    return EXIT_PLATFORM if end.exit_code is None else end.exit_code


def _await_others(context: _Context, assembly: Assembly, heart: Heart) -> NodeEnd:
    """The main program has ended well; so must those of the others, where they run it too."""
    parameters, workdir = context.parameters, context.workdir
    left = _deciding(context, assembly)
    # noted and not raised: an exception is lost if it comes in the middle of a finalizer
    asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: asked.append(number))
    if left:
        context.say(f"the main program has ended well; waiting for {len(left)} others")
    for _ in looks(parameters.timeout, workdir.interval):
        if asked:
            return NodeEnd(0, told=TOLD)
        if not left:
            return _judged(context, assembly)
        try:
            heart.beat()
            stop = workdir.read(STOP)
            left = still_there(workdir, left)
        except EngineError:
            continue  # the store may be back the next time
        if stop is not None:
            return NodeEnd(1, stop_reason(stop)) if not stopped_well(stop) else NodeEnd(0)
    names = ", ".join(member.address for member in left)
    text = f"{names} had not ended {parameters.timeout:g} s after the main program"
    return NodeEnd(1, text)


def _judged(context: _Context, assembly: Assembly) -> NodeEnd:
    """How the run has ended, now that all have: well, unless one failed whom nobody replaces."""
    needed = [m for m in _deciding(context, assembly) if not _role(context, m).replaceable]
    lost = [rank for rank, _ in lost_members(context.workdir, assembly, needed)]
    return NodeEnd(1, "others have failed") if lost else NodeEnd(0)


def _deciding(context: _Context, assembly: Assembly) -> list[Member]:
    """The members beside the main one by whose end the run is judged."""
    return [member for member in assembly.members[1:] if _role(context, member).decides]


def _role(context: _Context, member: Member) -> RoleSetup:
    return context.arranged.role({"MAIN": "main", "WORKER": "workers", "PS": "ps"}[member.mode])


def _work_as_main(context: _Context, assembly: Assembly, heart: Heart) -> NodeEnd:
    parameters, workdir = context.parameters, context.workdir
    lived = time.monotonic()
    ttl = None if parameters.ephemeral else parameters.ttl

    done = False
    alone = not _deciding(context, assembly)

    def look() -> str | None:
        heart.beat()
        if done:
            return None  # the stop file there is our own
        stop = workdir.read(STOP)
        if stop is not None:
            return f"the cluster was stopped: {stop_reason(stop)}"
        if ttl is not None and time.monotonic() - lived >= ttl:
            return f"its time to live of {ttl:g} s is over"
        return None

    def on_done() -> None:
        nonlocal done
        done = alone
        if alone:
            say_stop(workdir, "the program has ended: exit code 0", failed=False)

    running = Running(_launch(context, assembly), _patient(look), workdir.interval)
    return running.run(on_done)


def _live_other(context: _Context) -> int:
    parameters, workdir, say = context.parameters, context.workdir, context.say
    me = _member(context)
    say(f"{parameters.mode.lower()} at {me.address}, in {workdir.place}; waiting for the main node")
    try:
        assembly = join(workdir, me, parameters)
    finally:
        workdir.remove(me.file)
    say(f"joined as node {assembly.rank_of(me.run)} of {len(assembly.members)}")
    pulse = Pulse(workdir)

    def look() -> str | None:
        stop = workdir.read(STOP)
        if stop is not None:
            return f"the cluster was stopped: {stop_reason(stop)}"
        return "the main node is gone" if pulse.gone() else None

    running = Running(_launch(context, assembly), _patient(look), workdir.interval)
    end = running.run(lambda: None)
    say_ended(workdir, me, _outcome(end), end.exit_code)
    stop = workdir.read(STOP)
    if not end.told and end.exit_code != 0:
        # who never was ready has hardly failed of the end of others
        stop = _stop_within(workdir, _AFTERWARDS if end.ready else 0.0)
        if stop is None:
            return _fail(context, me, end)
    say(end.told or (f"{_outcome(end)}; the cluster was stopped" if stop else _outcome(end)))
    if end.told and stop is None:
        return EXIT_RUN_FAILED  # the main node is gone
    return EXIT_OK if stopped_well(stop) else EXIT_RUN_FAILED


def _fail(context: _Context, me: Member, end: NodeEnd) -> int:
    """Our end is the first failure. Where others cannot do without us, it is theirs."""
    context.say(_outcome(end))
    if not _role(context, me).replaceable:
        why = f"{context.parameters.mode} {socket.gethostname()} failed: {_outcome(end)}"
        say_stop(context.workdir, why, failed=True)
    return end.exit_code or EXIT_RUN_FAILED


def _stop_within(workdir: WorkDir, seconds: float) -> object:
    """The stop file, if there is one soon: what ended us may have been the end of others."""
    deadline = time.monotonic() + seconds
    while (stop := workdir.read(STOP)) is None and time.monotonic() < deadline:
        time.sleep(workdir.interval)
    return stop


def _patient(look: Callable[[], str | None]) -> Callable[[], str | None]:
    """A look that failed is made again the next time: the store may be back by then."""

    def patient() -> str | None:
        try:
            return look()
        except EngineError:
            return None

    return patient


def _launch(context: _Context, assembly: Assembly) -> Mapping[str, object]:
    return launch_of(
        context.parameters,
        context.arranged,
        assembly,
        context.folder,
        context.environ,
        sys.executable,
    )


def _member(context: _Context) -> Member:
    parameters = context.parameters
    return Member(
        run=parameters.run,
        mode=parameters.mode,
        address=parameters.address or own_address(),
        hostname=socket.gethostname(),
        ports=context.ports.numbers,
        rank=parameters.rank,
    )


def _outcome(end: NodeEnd) -> str:
    if end.exit_code == 0:
        return "the program has ended: exit code 0"
    code = "it never began" if end.exit_code is None else f"exit code {end.exit_code}"
    return f"the node failed: {code}{': ' + end.message if end.message else ''}"
