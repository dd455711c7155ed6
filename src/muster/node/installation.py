"""Installs the environments of `node.environments`, in processes of their own."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import platform
import re
import signal
import subprocess
import sys
import time
from collections import deque
from glob import glob
from itertools import islice, takewhile
from typing import Any, Callable, Deque, Dict, Iterator, List, Mapping, NamedTuple, Sequence, Tuple

from muster.node import processes
from muster.node.files import open_or_replace, read_regular, remove_entry, replace_file, write_all
from muster.node.incarnation_files import open_rank_output
from muster.node.leftovers import VARIABLE
from muster.node.messages import Environment

#: Seconds after which an environment that nobody has used is removed.
_UNUSED = 30 * 86_400.0
_KEY = 16  # hexadecimal digits
_TAIL = 12  # lines of a failed installation in which its reason is sought
#: Folders in source code that do not change what is installed.
_BUILT = ("build", "dist", "__pycache__")
#: Variables that would direct pip, or its Python, to another environment.
_MISLEADING = (
    *("VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONHOME", "PYTHONPATH", "PYTHONSTARTUP"),
    *("PIP_TARGET", "PIP_PREFIX", "PIP_USER"),
)
#: Variables of the job that pip gets, besides its own ones.
_OF_NETWORK = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
#: What a Python is: its version, where its packages are, whether it is a virtual environment.
_ABOUT = """\
import json, platform, site, sys
is_virtual = sys.prefix != sys.base_prefix
print(json.dumps([platform.python_version(), site.getsitepackages(), is_virtual]))
"""
#: The user and password in an address.
_CREDENTIALS = re.compile(r"(://)[^/\s@]+@")
#: pip repeats an earlier reason as "ResolutionImpossible".
_REASON = re.compile(
    r"(?:ERROR:|\s*cause:|\s*╰─▶|\s*\N{MULTIPLICATION SIGN})(?!\s*ResolutionImpossible)\s*(.+)"
)
_CONTINUED = re.compile(r"\s{4,}\S")


class CannotInstall(Exception):  # noqa: N818
    """The text says why."""


class _Killed(CannotInstall):
    """The installer was killed: the next one that needs the environment tries again."""


class Installation:
    """A process that installs an environment unless it is there, or waits for another one that
    does. place: the folder of all environments. output: a file for what pip prints. variables: the
    job's. Raises OSError."""

    def __init__(
        self, place: str, wanted: Environment, output: str, variables: Mapping[str, str]
    ) -> None:
        self._reading, writing = os.pipe()
        try:
            self.pid = os.fork()
            if self.pid == 0:
                _install_in_child(place, wanted, output, variables, writing)
        except OSError:
            os.close(self._reading)
            raise
        finally:
            os.close(writing)

    def key(self) -> str:
        """After its end: the key of the environment, which is there. Raises CannotInstall."""
        with os.fdopen(self._reading, "rb") as file:
            text = file.read().decode()
        answer = json.loads(text) if text else {"error": "its installation was killed"}
        if "error" in answer:
            raise CannotInstall(answer["error"])
        return str(answer["key"])

    def kill(self) -> None:
        """End it. It has not been reaped, so that its pid is its own."""
        processes.signal_group(self.pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)  # it may not have its group yet
        os.close(self._reading)


def _install_in_child(
    place: str,
    wanted: Environment,
    output: str,
    variables: Mapping[str, str],
    writing: int,
) -> None:
    """In the forked child: have the environment installed, and exit."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        processes.close_others((writing,))
        os.setsid()
        answer: Dict[str, str] = {}
        try:
            with os.fdopen(open_rank_output(output), "a", errors="replace") as file:

                def log(line: str) -> None:
                    file.write(line + "\n")
                    file.flush()

                answer = {"key": ensure(place, wanted, variables, log)}
        except CannotInstall as error:
            answer = {"error": str(error)}
        except OSError as error:
            answer = {"error": "the job's requirements cannot be installed: %s" % error}
        write_all(writing, json.dumps(answer).encode())
        code = 0
    finally:
        os._exit(code)


def ensure(
    place: str, wanted: Environment, variables: Mapping[str, str], log: Callable[[str], None]
) -> str:
    """Install an environment unless it is there. Returns its key. Raises CannotInstall, OSError.

    variables: the job's. log: receives what pip prints, by line.
    """
    base = _base_of(wanted.python)
    key = hashlib.sha256(json.dumps(list(_identity(wanted, base))).encode()).hexdigest()[:_KEY]
    folder = os.path.join(place, key)
    os.makedirs(place, 0o700, exist_ok=True)
    since = time.time_ns()
    lock = open_or_replace(folder + ".building", os.O_RDWR, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.path.exists(os.path.join(folder, "about")):
            return key
        with contextlib.suppress(FileNotFoundError):
            # another server has failed to install it since this one started to wait
            if os.stat(folder + ".failed").st_mtime_ns >= since:
                raise CannotInstall(read_regular(folder + ".failed").decode())
        remove_entry(folder)  # what an installation that was killed has left
        _install(folder, wanted, base, variables, log)
    finally:
        os.close(lock)
    _remove_unused(place)
    return key


class _Base(NamedTuple):
    """The Python that an environment extends."""

    path: str
    version: str
    #: Its folders of packages.
    packages: Sequence[str]
    #: Whether it is a virtual environment itself.
    virtual: bool


def _base_of(python: str) -> _Base:
    """Raises CannotInstall."""
    try:
        argv = [python, "-I", "-c", _ABOUT]
        done = subprocess.run(argv, check=True, capture_output=True, text=True)
        return _Base(python, *json.loads(done.stdout))
    except (OSError, ValueError, subprocess.CalledProcessError) as error:
        raise CannotInstall("cannot run %s: %s" % (python, error)) from None


def _identity(wanted: Environment, base: _Base) -> Iterator[object]:
    """Everything that determines the environment's content."""
    yield [list(wanted.requirements), *base, platform.machine(), sys.platform]
    for folder in base.packages:  # they are visible in it
        yield sorted(os.path.basename(one) for one in glob(folder + "/*.dist-info"))
    for line in wanted.requirements:
        word = line.rpartition(" ")[2]
        path = word.partition("=")[2] or word
        if os.path.isabs(path) and os.path.isfile(path):
            with open(path, "rb") as file:
                yield hashlib.sha256(file.read()).hexdigest()
        elif os.path.isabs(path) and os.path.isdir(path):
            yield sorted(_file_stamps(path))


def _file_stamps(folder: str) -> Iterator[List[Any]]:
    for parent, folders, names in os.walk(folder):
        folders[:] = [one for one in folders if one not in _BUILT and not one.startswith(".")]
        folders[:] = [one for one in folders if not one.endswith(".egg-info")]
        for name in names:
            found = os.lstat(os.path.join(parent, name))
            yield [os.path.relpath(parent, folder), name, found.st_size, found.st_mtime_ns]


def _install(
    folder: str,
    wanted: Environment,
    base: _Base,
    variables: Mapping[str, str],
    log: Callable[[str], None],
) -> None:
    started = time.monotonic()
    os.mkdir(folder, 0o700)
    try:
        descriptor = open_or_replace(folder + ".log", os.O_WRONLY | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", errors="replace") as file:

            def write(line: str) -> None:
                shown = _CREDENTIALS.sub(r"\1", line)
                file.write(shown + "\n")
                file.flush()
                log(shown)

            _run_pip(folder, wanted, base, _variables(variables), write)
    except CannotInstall as error:
        text = "%s (all of its output: %s.log)" % (error, folder)
        if not isinstance(error, _Killed):
            replace_file(folder + ".failed", text.encode(), 0o600)
        remove_entry(folder)
        raise CannotInstall(text) from None
    shown = [_CREDENTIALS.sub(r"\1", line) for line in wanted.requirements]
    about = {"requirements": shown, "python": base.version, "created": time.time()}
    replace_file(os.path.join(folder, "about"), json.dumps(about).encode(), 0o600)
    remove_entry(folder + ".failed")
    log("muster: installed in %.1f s, and kept for later runs" % (time.monotonic() - started))


def _variables(of_job: Mapping[str, str]) -> Dict[str, str]:
    """Those of pip. of_job: the job's."""
    given = {
        name: value
        for name, value in of_job.items()
        if name.startswith("PIP_") or name.upper() in _OF_NETWORK or name == VARIABLE
    }
    env = {
        name: value for name, value in {**os.environ, **given}.items() if name not in _MISLEADING
    }
    return {**env, "PIP_ROOT_USER_ACTION": "ignore", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def _run_pip(
    folder: str,
    wanted: Environment,
    base: _Base,
    env: Mapping[str, str],
    log: Callable[[str], None],
) -> None:
    """Raises CannotInstall, OSError."""
    count = len(wanted.requirements)
    what = "1 requirement" if count == 1 else "%d requirements" % count
    log("muster: installing %s with pip, once for this machine" % what)
    prefix = os.path.join(folder, "env")
    python = os.path.join(prefix, "bin", "python")
    _run([base.path, "-m", "venv", "--system-site-packages", "--without-pip", prefix], env, log)
    if base.virtual:
        show_parent(prefix, base.packages)
    pip = [python, "-m", "pip"]
    if subprocess.run([*pip, "--version"], env=env, capture_output=True, check=False).returncode:
        _run([python, "-m", "ensurepip"], env, log)
    lines = os.path.join(folder, "requirements.txt")
    replace_file(lines, "".join(line + "\n" for line in wanted.requirements).encode(), 0o600)
    try:
        _run([*pip, "install", "--progress-bar=off", "-r", lines], env, log)
    finally:
        os.unlink(lines)  # it may contain passwords


def show_parent(prefix: str, packages: Sequence[str]) -> None:
    """Add the packages of a virtual environment after the new one's own, so that a large framework
    need not be installed again. By itself, a virtual environment only adds those of the machine's
    Python. packages: the parent's folders of them."""
    (site,) = glob(os.path.join(prefix, "lib", "python*", "site-packages"))
    line = "; ".join(["import site", *("site.addsitedir(%r)" % path for path in packages)])
    replace_file(os.path.join(site, "_muster_parent.pth"), (line + "\n").encode())


def _run(argv: Sequence[str], env: Mapping[str, str], log: Callable[[str], None]) -> None:
    """Run a program and pass its output on by line. Raises CannotInstall, OSError."""
    code, last = run_installer(argv, env, log, cwd="/", encoding="utf-8")
    if code < 0:
        name = signal.Signals(-code).name
        raise _Killed("the job's requirements cannot be installed: pip was killed by %s" % name)
    if code:
        reason = reason_in([_CREDENTIALS.sub(r"\1", line) for line in last])
        raise CannotInstall("the job's requirements cannot be installed: %s" % reason)


def run_installer(
    argv: Sequence[str],
    env: Mapping[str, str],
    log: Callable[[str], None],
    *,
    cwd: str | None = None,
    encoding: str | None = None,
) -> Tuple[int, List[str]]:
    """Run a program and pass its output on by line. encoding: of the output; None: the locale's.
    Returns its exit code, minus N for signal N, and its last lines. Raises OSError."""
    last: Deque[str] = deque(maxlen=_TAIL)
    with subprocess.Popen(
        argv,
        env=env,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding=encoding,
        errors="replace",
    ) as program:
        assert program.stdout is not None
        for line in program.stdout:
            if line.strip():
                last.append(line.rstrip())
                log(line.rstrip())
    return program.returncode, list(last)


def reason_in(lines: Sequence[str]) -> str:
    """Why an installer failed, from the last lines that it printed.

    pip says it after "ERROR:" or a cross, uv after "cause:" or an arrow, conda in its last line.
    """
    for number in reversed(range(len(lines))):
        match = _REASON.match(lines[number])
        if match:
            rest = takewhile(_CONTINUED.match, islice(lines, number + 1, None))
            return " ".join([match[1], *map(str.strip, rest)])
    return lines[-1].strip() if lines else "it printed nothing"


def _remove_unused(place: str) -> None:
    """Remove environments that were not used for a while. Locks stay: others may wait for one."""
    for about in glob(os.path.join(place, "*", "about")):
        folder = os.path.dirname(about)
        with contextlib.suppress(OSError), contextlib.ExitStack() as locks:
            if os.stat(about).st_mtime > time.time() - _UNUSED:
                continue
            for kind in (".building", ".lock"):
                lock = open_or_replace(folder + kind, os.O_RDWR, 0o600)
                locks.callback(os.close, lock)
                # BlockingIOError: it is being installed, or in use
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(about)  # first: what is left is incomplete
            for one in (folder, folder + ".log", folder + ".failed"):
                remove_entry(one)
