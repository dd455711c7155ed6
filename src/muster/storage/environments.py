"""What runs have installed: each environment made once, under a lock, and kept by what is in it.

    MUSTER_HOME/environments/KEY/env       a virtual or conda environment
    MUSTER_HOME/environments/KEY/about     what is in it; written last: without it, it is half-made
    MUSTER_HOME/environments/KEY.lock      held shared while a node uses it, alone while it is made
    MUSTER_HOME/environments/KEY.log       what the installer said

An environment has its own path in its scripts, so it cannot be made elsewhere and moved.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import shutil
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec import Struct

from muster.errors import EngineError
from muster.plan.model import EnvironmentPlan
from muster.secrets import redacted
from muster.spec.source_paths import path_in
from muster.storage.home import Home
from muster.storage.installers import install, parent_packages

#: What building leaves in a folder of source code; it must not make it another.
_BUILT = ("build", "dist")
_KEY = 16  # hexadecimal digits


class Environment(Struct, frozen=True):
    """One environment, made or to be made."""

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
        """Why it could not be made the last time."""
        return self.folder.with_suffix(".failed")


def locate(home: Home, plan: EnvironmentPlan) -> Environment:
    """The environment that a plan needs on this machine, for the Python that runs us."""
    key = hashlib.sha256(json.dumps(list(_identity(plan))).encode()).hexdigest()[:_KEY]
    return Environment(key, home.environments / key)


def enter(
    environment: Environment,
    plan: EnvironmentPlan,
    environ: Mapping[str, str],
    say: Callable[[str], None],
) -> None:
    """Have it there, and stay there for as long as this process lives.

    The first to come makes it, the others wait. say: told what the installer says. Raises
    EngineError, with the installer's last lines, if it cannot be made.
    """
    environment.folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    descriptor = os.open(environment.lock, flags, 0o600)  # never closed: see above
    since = time.time_ns()
    while True:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        if environment.about.exists():
            os.utime(environment.about)  # when it was used last
            return
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if environment.about.exists():
            continue
        with suppress(FileNotFoundError):
            # whoever came with us, and made it first, has failed: so would we
            if environment.failed.stat().st_mtime_ns >= since:
                raise EngineError(environment.failed.read_text())
        shutil.rmtree(environment.folder, ignore_errors=True)
        _make(environment, plan, environ, say)


def _make(
    environment: Environment,
    plan: EnvironmentPlan,
    environ: Mapping[str, str],
    say: Callable[[str], None],
) -> None:
    environment.folder.mkdir(mode=0o700)
    started = time.monotonic()
    try:
        with open(environment.log, "w") as log:

            def both(line: str) -> None:
                shown = redacted(line)
                print(shown, file=log, flush=True)
                say(shown)

            install(environment.prefix, plan, environ, both)
    except EngineError as error:
        text = f"{error}\n(all of it: {environment.log})"
        environment.failed.write_text(text)
        shutil.rmtree(environment.folder, ignore_errors=True)
        raise EngineError(text) from None
    about = {
        "requirements": [redacted(line) for line in plan.requirements],
        "conda": plan.conda is not None,
        "python": platform.python_version(),
        "created": time.time(),
    }
    part = environment.about.with_suffix(".part")
    part.write_text(json.dumps(about))
    os.replace(part, environment.about)
    environment.failed.unlink(missing_ok=True)
    say(f"muster: installed in {time.monotonic() - started:.1f} s, and kept for later runs")


def _identity(plan: EnvironmentPlan) -> Iterator[object]:
    """Everything it depends on."""
    yield [plan.requirements, plan.conda]
    if plan.conda is None:
        # it stands on the Python that runs us and what that has
        yield [platform.python_version(), sys.executable, platform.machine(), sys.platform]
        for folder in parent_packages() or [sysconfig.get_path("purelib")]:
            yield sorted(path.name for path in Path(folder).glob("*.dist-info"))
    else:
        yield [platform.machine(), sys.platform]
    for line in plan.requirements:
        path = path_in(line)
        if path is not None and os.path.isfile(path):
            yield hashlib.sha256(path.read_bytes()).hexdigest()
        elif path is not None and os.path.isdir(path):
            yield list(_state(path))


def _state(folder: Path) -> Iterator[tuple[str, int, int]]:
    from muster.storage.ignore import files_of

    for name in files_of(folder, folder):
        top = name.partition("/")[0]
        if top not in _BUILT and not top.endswith(".egg-info"):
            status = os.lstat(folder / name)
            yield name, status.st_size, status.st_mtime_ns


class Installed(Struct, frozen=True):
    """An environment that is there. Times are epoch seconds, sizes bytes.

    used: when somebody last began to use it. busy: it is in use, or being made, now. ready: it is
    whole. failed: it could not be made.
    """

    key: str
    path: str
    requirements: list[str]
    conda: bool
    python: str
    created: float | None
    used: float | None
    size: int
    busy: bool
    ready: bool
    failed: bool


def listing(home: Home) -> list[Installed]:
    """All, the one used last first."""
    found = [_look(environment) for environment in _all(home)]
    return sorted(found, key=lambda one: one.used or 0, reverse=True)


def remove(home: Home, key: str) -> bool:
    """Remove one; False if it is in use."""
    environment = Environment(key, home.environments / key)
    with _alone(environment) as alone:
        if not alone:
            return False
        environment.about.unlink(missing_ok=True)  # first: what is half gone must not look whole
        shutil.rmtree(environment.folder, ignore_errors=True)
        for path in (environment.log, environment.failed):
            path.unlink(missing_ok=True)
    return True


def _all(home: Home) -> list[Environment]:
    if not home.environments.is_dir():
        return []
    known = {path.name.partition(".")[0] for path in home.environments.iterdir()}
    found = [Environment(key, home.environments / key) for key in known]
    # a lock stays for ever: somebody may be waiting for it
    return [one for one in found if one.folder.is_dir() or one.failed.exists()]


def _look(environment: Environment) -> Installed:
    about: dict[str, object] = {}
    used = None
    with suppress(FileNotFoundError):
        about = json.loads(environment.about.read_text())
        used = environment.about.stat().st_mtime
    with _alone(environment) as alone:
        busy = not alone
    lines, created = about.get("requirements", []), about.get("created")
    return Installed(
        key=environment.key,
        path=str(environment.prefix),
        requirements=list(lines) if isinstance(lines, list) else [],
        conda=bool(about.get("conda")),
        python=str(about.get("python", "")),
        created=created if isinstance(created, float) else None,
        used=used,
        size=_size(environment.folder),
        busy=busy,
        ready=bool(about),
        failed=environment.failed.exists(),
    )


def _size(folder: Path) -> int:
    total = 0
    for top, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                total += os.lstat(os.path.join(top, name)).st_size
    return total


@contextmanager
def _alone(environment: Environment) -> Iterator[bool]:
    """Whether nobody uses or makes it, and nobody will while we look."""
    try:
        descriptor = os.open(environment.lock, os.O_RDONLY | os.O_CLOEXEC)  # a disk may be full
    except FileNotFoundError:
        descriptor = os.open(environment.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield True
    except BlockingIOError:
        yield False
    finally:
        os.close(descriptor)
