"""The parameters of `muster node`, from its environment. Pure.

Each parameter has two names: that of the design (`WORK_DIR`, `ENTRY_POINT`, `TIME_OUT`) and that of
ADS (`OCI__WORK_DIR`, `OCI__ENTRY_SCRIPT`, `OCI__TIMEOUT`). ADS's name takes precedence, since ADS
sets it for each single run.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from muster.bootstrap.workdir import work_dir_problem
from muster.errors import InvalidInput, Problem
from muster.frameworks.registry import framework_names
from muster.spec.quantities import parse_duration
from muster.spec.wording import Refused, short, suggestion

Mode = Literal["MAIN", "WORKER", "PS"]
_MODES: tuple[Mode, ...] = ("MAIN", "WORKER", "PS")
#: The variables of each parameter; the first that is set counts.
_NAMES = {
    "mode": ("OCI__MODE", "MODE"),
    "work_dir": ("OCI__WORK_DIR", "WORK_DIR"),
    "cluster_type": ("OCI__CLUSTER_TYPE", "CLUSTER_TYPE"),
    "worker_count": ("OCI__WORKER_COUNT", "WORKER_COUNT"),
    "ps_count": ("OCI__PS_COUNT", "PS_COUNT"),
    "ephemeral": ("OCI__EPHEMERAL", "EPHEMERAL"),
    "entry_point": ("OCI__ENTRY_SCRIPT", "ENTRY_SCRIPT", "OCI__ENTRY_POINT", "ENTRY_POINT"),
    "args": ("OCI__ENTRY_SCRIPT_ARGS", "ENTRY_SCRIPT_ARGS", "ARGS"),
    "kwargs": ("OCI__ENTRY_SCRIPT_KWARGS", "ENTRY_SCRIPT_KWARGS", "NAMED_ARGS"),
    "timeout": ("OCI__TIMEOUT", "OCI__TIME_OUT", "TIMEOUT", "TIME_OUT"),
    "ttl": ("OCI__TTL", "TTL"),
    "start_args": ("OCI__START_ARGS", "START_ARGS"),
    "code_dir": ("OCI__CODE_DIR", "CODE_DIR"),
    "job": ("JOB_OCID",),
    "run": ("JOB_RUN_OCID",),
    "rank": ("RANK",),
    "processes": ("nprocs", "NPROCS"),
    "threads": ("nthread", "NTHREAD"),
    "death_timeout": ("death_timeout", "DEATH_TIMEOUT"),
    "address": ("MUSTER_NODE_ADDRESS",),
    "profile": ("PROFILE",),
    "profile_command": ("PROFILE_CMD",),
}
#: An IPv4 address or a host name.
_ADDRESS = re.compile(r"[0-9A-Za-z]([0-9A-Za-z.-]*[0-9A-Za-z])?")
#: ADS: the variable that has nodes fetch the code, and the variables that name its source.
_CODE_TYPE = "OCI__RUNTIME_TYPE"
_FETCHED = {"git": "OCI__RUNTIME_URI, _GIT_BRANCH and _GIT_COMMIT", "remote": "OCI__RUNTIME_URI"}


class Parameters(Struct, frozen=True):
    """The parameters of one node. Times in seconds."""

    mode: Mode
    #: A folder or fsspec URL that all nodes can write to.
    work_dir: str
    framework: str
    #: The unique id of the cluster.
    job: str
    #: The unique name of this node.
    run: str
    worker_count: int = 1
    ps_count: int = 0
    #: Whether the cluster ends with its program.
    ephemeral: bool = True
    #: The program, relative to `code_dir`.
    entry_point: str | None = None
    args: tuple[str, ...] = ()
    kwargs: tuple[str, ...] = ()
    #: How long nodes wait for each other.
    timeout: float = 600.0
    #: The time to live of a persistent cluster; None = until it is stopped.
    ttl: float | None = None
    #: More arguments of the scheduler or worker that this node starts.
    start_args: tuple[str, ...] = ()
    code_dir: str | None = None
    #: The node's place among the nodes of its mode, if the environment gives one.
    rank: int | None = None
    #: Processes on each node.
    processes: int = 1
    #: Threads of each Dask worker.
    threads: int | None = None
    #: How long a Dask worker waits for its scheduler.
    death_timeout: float | None = None
    #: The address at which other nodes reach this one; None = the one used to reach others.
    address: str | None = None
    #: The command that runs the program under a profiler.
    profiler: tuple[str, ...] = ()
    #: The names of the parameters that the environment sets.
    given: frozenset[str] = frozenset()

    @property
    def others(self) -> int:
        """The number of nodes, the main node not counted."""
        return self.worker_count + self.ps_count


def read_parameters(environ: Mapping[str, str], new_run: str) -> Parameters:
    """Read the parameters.

    new_run: a unique name, appended to the name that the environment gives (`JOB_RUN_OCID`). Raises
    InvalidInput with every problem found.
    """
    return _Reader(environ).read(new_run)


def not_honored(environ: Mapping[str, str], parameters: Parameters) -> list[str]:
    """A message for each variable that is set and has no effect."""
    notes = []
    if environ.get("SYNC_ARTIFACTS", "").strip() == "1":
        why = "nothing is copied from OCI__SYNC_DIR; have the program write to a store"
        notes.append(f"SYNC_ARTIFACTS is not used here: {why}")
    if parameters.ttl is not None and parameters.ephemeral and parameters.mode == "MAIN":
        notes.append(
            "TTL is for a persistent cluster (EPHEMERAL=0); this one ends with its program"
        )
    if parameters.entry_point is not None and not parameters.ephemeral:
        notes.append("ENTRY_POINT is for EPHEMERAL=1; a persistent cluster runs no program")
    return notes


class _Reader:
    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._problems: list[Problem] = []

    def read(self, new_run: str) -> Parameters:
        ephemeral = self._truth("ephemeral", default=True)
        mode = self._mode()
        entry = self._text("entry_point")
        framework = self._framework()
        if ephemeral and entry is None and (mode == "MAIN" or framework not in _CLIENTS):
            hint = "name the program to run, or set EPHEMERAL=0 for a persistent cluster"
            self._problems.append(Problem(self._name("entry_point"), "is not set", hint))
        self._refuse_fetching()
        job = self._needed("job", "it identifies the cluster in WORK_DIR; set the same value on")
        work_dir = self._needed("work_dir", "a folder or fsspec URL that all nodes see; set it on")
        self._check_names(job, work_dir)
        made = Parameters(
            mode=mode,
            work_dir=work_dir,
            framework=framework,
            job=job,
            # nodes may share a name, and a restarted node has the name it had before
            run="-".join(filter(None, (self._text("run"), new_run))),
            worker_count=self._number("worker_count", 1, least=0),
            ps_count=self._number("ps_count", 0, least=0),
            ephemeral=ephemeral,
            entry_point=entry,
            args=self._words("args"),
            kwargs=self._words("kwargs"),
            timeout=self._duration("timeout") or 600.0,
            ttl=self._duration("ttl"),
            start_args=self._words("start_args"),
            code_dir=self._text("code_dir"),
            rank=self._number("rank", -1, least=0) if self._text("rank") else None,
            processes=self._number("processes", 1, least=1),
            threads=self._number("threads", 1, least=1) if self._text("threads") else None,
            death_timeout=self._duration("death_timeout"),
            address=self._text("address"),
            profiler=self._words("profile_command")
            if self._truth("profile", default=False)
            else (),
            given=frozenset(what for what in _NAMES if self._text(what) is not None),
        )
        if self._problems:
            raise InvalidInput(*self._problems)
        return made

    def _refuse_fetching(self) -> None:
        """Refuse `OCI__RUNTIME_TYPE`: CODE_DIR might hold other code."""
        text = self._value(_CODE_TYPE)
        where = _FETCHED.get((text or "").lower())
        if where is not None:
            problem = f"{text}: nodes fetch no code, they run what is in CODE_DIR"
            hint = f"put the code that {where} name there, and unset {_CODE_TYPE}"
            self._problems.append(Problem(_CODE_TYPE, problem, hint))

    def _check_names(self, job: str, work_dir: str) -> None:
        """Check the work directory, the job's id, and the node's address."""
        self._problems += filter(None, [work_dir_problem(work_dir, self._name("work_dir"))])
        if job in (".", "..") or "/" in job or not job.isprintable():
            problem = f"{job!r} cannot be the name of a folder in WORK_DIR"
            self._problems.append(Problem(self._name("job"), problem, "one word, such as an OCID"))
        address = self._text("address")
        if address is not None and not _ADDRESS.fullmatch(address):
            problem = f"{address!r} is not an address or host name"
            hint = "write the address at which other nodes reach this one, such as 10.0.0.4"
            self._problems.append(Problem(self._name("address"), problem, hint))

    def _name(self, what: str) -> str:
        """The variable that is set, otherwise the last one."""
        names = _NAMES[what]
        return next((name for name in names if self._value(name)), names[-1])

    def _text(self, what: str) -> str | None:
        return self._value(self._name(what))

    def _value(self, name: str) -> str | None:
        # ADS sets variables without a value to "None"
        text = self._environ.get(name, "").strip()
        return text if text and text != "None" else None

    def _needed(self, what: str, why: str) -> str:
        text = self._text(what)
        if text is None:
            self._problems.append(Problem(self._name(what), "is not set", f"{why} every node"))
        return text or ""

    def _mode(self) -> Mode:
        text = self._text("mode") or ""
        for mode in _MODES:
            if text.upper() == mode:
                return mode
        problem = f"{text!r} is not a mode" if text else "is not set"
        self._problems.append(Problem(self._name("mode"), problem, "use MAIN, WORKER or PS"))
        return "MAIN"

    def _framework(self) -> str:
        text = self._text("cluster_type") or ""
        names = framework_names()
        if text.lower() not in names:
            problem = f"no framework named {short(text)}" if text else "is not set"
            self._problems.append(
                Problem(self._name("cluster_type"), problem, suggestion(text, names))
            )
        return text.lower()

    def _words(self, what: str) -> tuple[str, ...]:
        text = self._text(what)
        try:
            return tuple(shlex.split(text)) if text else ()
        except ValueError as error:
            self._problems.append(Problem(self._name(what), f"{text!r}: {error}", "check quotes"))
            return ()

    def _number(self, what: str, default: int, *, least: int) -> int:
        text = self._text(what)
        if text is None:
            return default
        if not text.isdecimal() or int(text) < least:
            problem = f"must be a whole number from {least}, not {text!r}"
            self._problems.append(Problem(self._name(what), problem))
            return default
        return int(text)

    def _duration(self, what: str) -> float | None:
        text = self._text(what)
        if text is None:
            return None
        try:
            return parse_duration(text)
        except Refused as error:
            self._problems.append(Problem(self._name(what), error.message, error.hint))
            return None

    def _truth(self, what: str, *, default: bool) -> bool:
        text = (self._text(what) or "").lower()
        if text in ("1", "true", "yes"):
            return True
        if text in ("0", "false", "no"):
            return False
        if text:
            problem = f"must be 0 or 1, not {text!r}"
            self._problems.append(Problem(self._name(what), problem))
        return default


#: Frameworks whose program runs on the main node only: the other nodes need no ENTRY_POINT.
_CLIENTS = ("dask", "ray", "spark", "mpi", "horovod")
