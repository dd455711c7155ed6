"""Environments with the packages of runs: each is installed once, under a lock, and then shared.

    MUSTER_HOME/environments/KEY/env       a virtual or conda environment
    MUSTER_HOME/environments/KEY/about     its content; written last: without it, it is incomplete
    MUSTER_HOME/environments/KEY.lock      locked shared by users, exclusively by the installer
    MUSTER_HOME/environments/KEY.log       the installer's output

KEY is a hash of everything that determines the content. The scripts of an environment contain its
path, so that it cannot be installed elsewhere and moved.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import Struct

from muster.errors import EngineError
from muster.file_locks import flock, try_flock
from muster.node.files import read_regular, remove_entry, replace_file
from muster.plan.model import EnvironmentPlan
from muster.secrets import redacted
from muster.spec.paths import path_in
from muster.storage.disk_use import disk_use
from muster.storage.home import Home
from muster.storage.installers import install, parent_packages
from muster.unix_account import process_options

#: Folders that building leaves in source code; they do not change the key.
_BUILT = ("build", "dist")
_KEY = 16  # hexadecimal digits


class Environment(Struct, frozen=True):
    """The paths of one environment, whether it is installed or not."""

    key: str
    folder: Path

    @property
    def prefix(self) -> Path:
        return self.folder / "env"

    @property
    def python(self) -> str:
        return str(self.prefix / "bin" / "python")

    @property
    def about(self) -> Path:
        return self.folder / "about"

    @property
    def lock(self) -> Path:
        return self.folder.with_suffix(".lock")

    @property
    def log(self) -> Path:
        return self.folder.with_suffix(".log")

    @property
    def failed(self) -> Path:
        """The error of the last installation, if it failed."""
        return self.folder.with_suffix(".failed")


def locate(home: Home, plan: EnvironmentPlan, base: str) -> Environment:
    """The environment that a plan needs on this machine. base: the Python that it extends."""
    key = hashlib.sha256(json.dumps(list(_identity(plan, base))).encode()).hexdigest()[:_KEY]
    return Environment(key, home.environments / key)


def acquire(
    environment: Environment,
    plan: EnvironmentPlan,
    environ: Mapping[str, str],
    base: str,
    log: Callable[[str], None],
) -> None:
    """Install the environment if necessary, and hold its shared lock until this process ends.

    The first process installs, the others wait. base: the Python that it extends. log: receives
    the installer's output by line. Raises EngineError, with the installer's last lines, if the
    installation fails.
    """
    environment.folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    descriptor = os.open(environment.lock, flags, 0o600)  # never closed, which keeps the lock
    since = time.time_ns()
    while True:
        flock(descriptor, fcntl.LOCK_SH, environment.lock)
        if environment.about.exists():
            os.utime(environment.about)  # the time of last use
            return
        flock(descriptor, fcntl.LOCK_EX, environment.lock)
        if environment.about.exists():
            continue
        with suppress(FileNotFoundError):
            # another process has failed to install it since this one started to wait
            if environment.failed.stat().st_mtime_ns >= since:
                raise EngineError(environment.failed.read_text())
        remove_entry(str(environment.folder))
        _install(environment, plan, environ, base, log)


def _install(
    environment: Environment,
    plan: EnvironmentPlan,
    environ: Mapping[str, str],
    base: str,
    log: Callable[[str], None],
) -> None:
    environment.folder.mkdir(mode=0o700)
    started = time.monotonic()
    try:
        with open(environment.log, "w") as file:

            def write_line(line: str) -> None:
                shown = redacted(line)
                print(shown, file=file, flush=True)
                log(shown)

            install(environment.prefix, plan, environ, base, write_line)
    except EngineError as error:
        text = f"{error} (all of its output: {environment.log})"
        environment.failed.write_text(text)
        remove_entry(str(environment.folder))
        raise EngineError(text) from None
    about = _About(
        [redacted(line) for line in plan.requirements],
        plan.conda is not None,
        _facts_of(base).version,
        time.time(),
    )
    replace_file(environment.about, msgspec.json.encode(about), 0o600)
    environment.failed.unlink(missing_ok=True)
    log(f"muster: installed in {time.monotonic() - started:.1f} s, and kept for later runs")


class _Facts(NamedTuple):
    """What matters of a Python."""

    version: str
    #: Its folder of packages.
    packages: str


def _facts_of(base: str) -> _Facts:
    """Raises EngineError if the Python cannot be run."""
    if base == sys.executable:
        return _Facts(platform.python_version(), sysconfig.get_path("purelib"))
    code = "import platform as p, sysconfig as s; print(p.python_version(), s.get_path('purelib'))"
    try:
        command = [base, "-I", "-c", code]
        done = subprocess.run(
            command, check=True, capture_output=True, text=True, **process_options()
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise EngineError(f"cannot run the Python of the submitter, {base}: {error}") from None
    return _Facts(*done.stdout.strip().split(" ", 1))


def _identity(plan: EnvironmentPlan, base: str) -> Iterator[object]:
    """Everything that determines the environment's content."""
    yield [plan.requirements, plan.conda]
    if plan.conda is None:
        # it also sees the packages of the base
        facts = _facts_of(base)
        yield [facts.version, base, platform.machine(), sys.platform]
        for folder in parent_packages(base) or [facts.packages]:
            yield sorted(path.name for path in Path(folder).glob("*.dist-info"))
    else:
        yield [platform.machine(), sys.platform]
    for line in plan.requirements:
        path = path_in(line)
        if path is not None and os.path.isfile(path):
            yield hashlib.sha256(path.read_bytes()).hexdigest()
        elif path is not None and os.path.isdir(path):
            yield list(_file_stamps(path))


def _file_stamps(folder: Path) -> Iterator[tuple[str, int, int]]:
    from muster.storage.ignore import files_of

    for name in files_of(folder, folder):
        top = name.partition("/")[0]
        if top not in _BUILT and not top.endswith(".egg-info"):
            status = os.lstat(folder / name)
            yield name, status.st_size, status.st_mtime_ns


class _About(Struct, frozen=True):
    """What the file `about` says."""

    requirements: list[str]
    conda: bool
    python: str
    #: Epoch seconds.
    created: float


class Installed(Struct, frozen=True):
    """An environment on disk. Times are epoch seconds."""

    key: str
    path: str
    requirements: list[str]
    conda: bool
    python: str
    created: float | None
    #: When a process last started to use it.
    used: float | None
    #: Bytes on the disk.
    size: int
    #: It is in use, or being installed.
    busy: bool
    #: It is complete.
    ready: bool
    #: The last installation failed.
    failed: bool


def list_installed(home: Home) -> list[Installed]:
    """All environments, most recently used first."""
    found = [_inspect(environment) for environment in _all(home)]
    return sorted(found, key=lambda one: one.used or 0, reverse=True)


def remove(home: Home, key: str) -> bool:
    """Remove an environment. Returns False if it is in use. Raises OSError."""
    environment = Environment(key, home.environments / key)
    with _exclusive_lock(environment) as locked:
        if not locked:
            return False
        environment.about.unlink(missing_ok=True)  # first: a partly removed one is incomplete
        remove_entry(str(environment.folder))
        for path in (environment.log, environment.failed):
            path.unlink(missing_ok=True)
    return True


def _all(home: Home) -> list[Environment]:
    if not home.environments.is_dir():
        return []
    known = {path.name.partition(".")[0] for path in home.environments.iterdir()}
    found = [Environment(key, home.environments / key) for key in known]
    # locks are never removed: a process may be waiting for one
    return [one for one in found if one.folder.is_dir() or one.failed.exists()]


def _inspect(environment: Environment) -> Installed:
    about, used = None, None
    # a file that a power failure has cut is that of an incomplete environment
    with suppress(OSError, msgspec.DecodeError):  # programs of its owner may put anything there
        about = msgspec.json.decode(read_regular(environment.about), type=_About)
        used = environment.about.stat().st_mtime
    with _exclusive_lock(environment) as locked:
        busy = not locked
    return Installed(
        key=environment.key,
        path=str(environment.prefix),
        requirements=[] if about is None else about.requirements,
        conda=about is not None and about.conda,
        python="" if about is None else about.python,
        created=None if about is None else about.created,
        used=used,
        size=disk_use(environment.folder),
        busy=busy,
        ready=about is not None,
        failed=environment.failed.exists(),
    )


@contextmanager
def _exclusive_lock(environment: Environment) -> Iterator[bool]:
    """Try to lock the environment. Yields whether no other process uses or installs it."""
    try:
        descriptor = os.open(environment.lock, os.O_RDWR | os.O_CLOEXEC)  # the disk may be full
    except FileNotFoundError:
        descriptor = os.open(environment.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        yield try_flock(descriptor, fcntl.LOCK_EX, environment.lock)
    finally:
        os.close(descriptor)
