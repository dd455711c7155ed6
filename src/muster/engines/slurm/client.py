"""Runs the commands of Slurm, each within a time limit: they hang when its controller is gone.

Only formats that are the same from Slurm 22.05 on are used.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import subprocess
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

#: Seconds for a command.
_TIMEOUT = 30.0
#: The oldest release that is supported.
OLDEST = (22, 5)
_FORMAT = "%A|%i|%j|%T|%S|%e|%P|%Q|%U|%N|%r"
#: States in which a job has no processes any more.
_OVER = frozenset(
    (
        *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL"),
        *("OUT_OF_MEMORY", "PREEMPTED", "REVOKED", "TIMEOUT"),
    )
)
_WAITING = frozenset(("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED"))
#: Variables of the person who runs it that the commands need.
_NEEDED = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ"),
    *("SLURM_CONF", "LD_LIBRARY_PATH", "KRB5CCNAME"),
)
#: Those that would replace what a script says, or have a job signaled or submitted elsewhere: jobs
#: are found by their names, in the cluster of the configuration.
_OWN_VARIABLES = frozenset(
    (
        *("SBATCH_JOB_NAME", "SBATCH_ARRAY_INX", "SBATCH_INPUT", "SBATCH_OUTPUT"),
        *("SBATCH_ERROR", "SBATCH_OPEN_MODE", "SBATCH_REQUEUE", "SBATCH_NO_KILL", "SBATCH_WAIT"),
        *("SBATCH_CLUSTERS", "SBATCH_SIGNAL", "SBATCH_EXPORT"),
    )
)
#: Errors of a command that cannot be run, which do not pass, as a lack of memory may.
_FINAL = (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.ENOEXEC, errno.ELOOP)
#: Makes squeue list every task of an array.
_WHOLE = {"SLURM_BITSTR_LEN": "0"}
#: What commands say of a job that Slurm does not know.
_UNKNOWN_JOB = "Invalid job id"
#: Prefix of usage hints; prefix of sbatch's summary, which often repeats earlier lines.
_USAGE, _SUMMARY = 'Try "', "Batch job submission failed: "


class CannotRun(Exception):  # noqa: N818
    """A command of Slurm has failed, or does not answer. The text says why, for people.

    refused: whether Slurm has answered that it does not do what was asked.
    """

    def __init__(self, text: str, *, refused: bool) -> None:
        super().__init__(text)
        self.refused = refused


class UnknownJob(CannotRun):
    """Slurm does not know a job any more, or not yet."""


class Job(Struct, frozen=True):
    """What Slurm says of a job, or of a component of one."""

    id: int
    #: That of the job: for a component, that of the first one; for a task of an array, that of all.
    leader: int
    name: str
    state: str
    #: When it starts, as Slurm expects, in its words; "" if it does not say.
    start: str
    nodes: tuple[str, ...]
    reason: str
    #: When it reaches its time limit, or the end of its grace time, in epoch seconds; None: never,
    #: or that is not known.
    end: float | None = None
    partition: str = ""
    #: Higher ones come first.
    priority: int = 0
    #: The uid of its user.
    user: str = ""
    #: How many jobs of its partition come before it; None: not known.
    ahead: int | None = None
    #: The number of a task of an array.
    task: int | None = None
    #: Whether it was preempted, also if it has ended by itself before it had to. Only known of jobs
    #: in `details_of`.
    preempted: bool = False

    @property
    def key(self) -> str:
        """What Slurm calls the job: the same for its components."""
        return f"{self.leader}" if self.task is None else f"{self.leader}_{self.task}"

    @property
    def over(self) -> bool:
        """Whether no process of it is left."""
        return self.state in _OVER

    @property
    def ending(self) -> bool:
        """Whether it is over soon: Slurm is ending its processes, and lists only those of its nodes
        on which some may be left."""
        return self.state == "COMPLETING"

    @property
    def waits(self) -> bool:
        """Whether it has no nodes yet."""
        return self.state in _WAITING


def submit(script: str, environ: Mapping[str, str], *options: str) -> int:
    """Submit a script. Returns the id of the job. environ: of the person who does. Raises
    CannotRun."""
    answer = run(("sbatch", "--parsable", *options), environ, script)
    found = re.match(r"\d+", answer)
    if found is None:
        raise CannotRun(f"sbatch has answered {answer[:200]!r}", refused=False)
    return int(found[0])


def test_submission(script: str, environ: Mapping[str, str]) -> str:
    """What Slurm says of a script when it validates it. Raises CannotRun if it refuses it."""
    done = _run(("sbatch", "--test-only"), environ, script)
    if done.returncode:
        raise CannotRun(_why("sbatch", done.stderr), refused=True)
    return done.stderr.strip().removeprefix("sbatch: ").partition("\n")[0] or "accepted"


def jobs_with_ids(
    ids: Collection[int], environ: Mapping[str, str], *, queue: bool = False
) -> list[Job]:
    """The components of these jobs that Slurm knows. queue: find out how many come before those
    that wait, which has squeue print all jobs. Raises CannotRun."""
    if queue:
        every = parse_jobs(_squeue(environ, "--states=all"), ids)
        return with_positions([job for job in every if job.leader in ids], every)
    listed = ",".join(map(str, sorted(ids)))
    try:
        return parse_jobs(_squeue(environ, "--states=all", f"--jobs={listed}"), ids)
    except UnknownJob:
        return []


def details_of(job: str, environ: Mapping[str, str]) -> list[Job]:
    """The components of a job that Slurm knows, with what squeue does not say. job: see `Job.key`.
    Raises CannotRun."""
    try:
        return parse_details(run(("scontrol", "--oneliner", "show", "job", job), environ))
    except UnknownJob:
        return []


def parse_details(text: str) -> list[Job]:
    """The jobs in the output of `scontrol --oneliner show job`."""
    found = []
    for line in text.splitlines():
        facts = dict(re.findall(r"(?:^| )(\w+)=(\S*)", line))
        if (number := facts.get("JobId", "")).isdigit():
            found.append(
                Job(
                    int(number),
                    int(facts.get("HetJobId") or facts.get("ArrayJobId") or number),
                    facts.get("JobName", ""),
                    facts.get("JobState", ""),
                    facts.get("StartTime", ""),
                    tuple(expand(facts.get("NodeList", ""))),
                    facts.get("Reason", ""),
                    preempted=facts.get("PreemptTime", "None") != "None",
                    task=_task(facts.get("ArrayTaskId", "")),
                )
            )
    return found


#: Reasons for which a job waits that is no candidate for nodes now.
_NOT_IN_LINE = ("Dependency", "BeginTime", "JobHeld", "JobArrayTaskLimit")


def with_positions(own: Iterable[Job], every: Collection[Job]) -> list[Job]:
    """Jobs, with how many come before each that waits for its turn, by priority and then by age.
    every: all jobs that Slurm shows. If there are none of other users, it may hide them."""
    if len({job.user for job in every}) < 2:
        return [*own]
    line = [j for j in every if j.waits and j.priority and not j.reason.startswith(_NOT_IN_LINE)]
    return [replace(job, ahead=_ahead(job, line)) if job in line else job for job in own]


def _ahead(job: Job, line: Iterable[Job]) -> int:
    before = {
        other.leader
        for other in line
        if other.partition == job.partition
        and (-other.priority, other.leader) < (-job.priority, job.leader)
    }
    return len(before - {job.leader})


def jobs_of_run(run_id: str, environ: Mapping[str, str]) -> list[Job]:
    """The jobs of a run that have not ended, as their names say. Raises CannotRun."""
    own = [f"--user={os.getuid()}"]
    return [
        job
        for job in parse_jobs(_squeue(environ, *own))
        if job.name.startswith(f"muster-{run_id}.") and not job.over
    ]


def _squeue(environ: Mapping[str, str], *options: str) -> str:
    return run(("squeue", "--noheader", f"--format={_FORMAT}", *options), environ)


def cancel_words(name: str, *jobs: str) -> list[str]:
    """The command that cancels jobs of this name. jobs: see `Job.key`; none: all of this name.

    The name is given even with ids: a controller that has lost its state gives them again, and jobs
    of others may have them.
    """
    return ["scancel", f"--name={name}", *jobs]


#: Runs the command that its arguments are until it succeeds, or what it cancels has ended; for an
#: hour or so.
PERSISTENT = f"""\
for pause in 1 2 4 8 16 $(seq 30 89); do
  why=$("$@" 2>&1) && exit
  case $why in *"{_UNKNOWN_JOB}"*) exit 0 ;; esac
  sleep "$pause"
done
exit 1
"""


def cancel(name: str, job: str, environ: Mapping[str, str]) -> None:
    """Cancel a job, if it has this name; nothing if it has ended. Raises CannotRun."""
    with contextlib.suppress(UnknownJob):
        run(cancel_words(name, *([job] if job else [])), environ)


def cancel_steps(steps: Iterable[str], environ: Mapping[str, str]) -> None:
    """Cancel steps; nothing if they have ended. Raises CannotRun."""
    run(("scancel", "--quiet", *steps), environ)


def run(words: Sequence[str], environ: Mapping[str, str], text: str = "") -> str:
    """What a command prints. text: for its standard input. Raises CannotRun."""
    done = _run(words, environ, text)
    if done.returncode:
        kind = UnknownJob if _UNKNOWN_JOB in done.stderr else CannotRun
        raise kind(_why(words[0], done.stderr), refused=not _is_unreachable(done.stderr))
    return done.stdout


def _run(
    words: Sequence[str], environ: Mapping[str, str], text: str
) -> subprocess.CompletedProcess[str]:
    """Run a command. Raises CannotRun if it cannot be run, or does not answer."""
    try:
        return subprocess.run(
            words,
            input=text,
            env=client_environ(environ),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT,
            start_new_session=True,  # keys pressed on a terminal do not end it
            check=False,
        )
    except subprocess.TimeoutExpired:
        text = f"{words[0]} does not answer within {_TIMEOUT:.0f} s"
        raise CannotRun(text, refused=False) from None
    except OSError as error:
        text = f"{words[0]} cannot be run: {error.strerror}"
        raise CannotRun(text, refused=error.errno in _FINAL) from None


def client_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of a command: Slurm keeps that of `sbatch` where administrators see it, so
    it has no more than is needed. The submitter's defaults for `sbatch` apply."""
    found = {name: value for name, value in environ.items() if name in _NEEDED}
    found |= {
        name: value
        for name, value in environ.items()
        if name.startswith("SBATCH_") and name not in _OWN_VARIABLES
    }
    return {"PATH": os.defpath, **found, "SLURM_TIME_FORMAT": "standard", **_WHOLE}


def _why(command: str, text: str) -> str:
    """Why a command has failed, from what it has written to its standard error."""
    lines = [line.strip().removeprefix(f"{command}: ") for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith(_USAGE)]
    errors = [line for line in lines if "error:" in line] or lines
    reasons: list[str] = []
    for line in errors:
        one = line.rpartition("error: ")[2]
        summary = one.removeprefix(_SUMMARY)
        if summary not in reasons and not (one != summary and _is_repeated(summary, reasons)):
            reasons.append(summary)
    return "; ".join(reasons) or f"{command} has failed"


def _is_repeated(summary: str, reasons: Sequence[str]) -> bool:
    """Whether a line before has most words of a summary."""
    words = set(re.findall(r"\w+", summary.lower()))
    return any(
        2 * len(words & set(re.findall(r"\w+", line.lower()))) > len(words) for line in reasons
    )


def _is_unreachable(text: str) -> bool:
    """Whether Slurm's controller has not answered, so that it may have done what was asked."""
    known = ("Unable to contact", "Connection refused", "timed out", "Zero Bytes", "Connection re")
    return any(one.lower() in text.lower() for one in known)


def parse_jobs(text: str, arrays: Collection[int] = ()) -> list[Job]:
    """The jobs in the output of squeue (`_FORMAT`). arrays: those whose tasks that wait are listed
    one by one; of others, they are one job."""
    found = []
    for line in text.splitlines():
        fields = line.split("|", 10)
        if len(fields) == 11 and fields[0].isdigit():
            number, shown, name, state, start, end, partition, priority, user, nodes, reason = (
                fields
            )
            leader, _, tasks = shown.partition("+")[0].partition("_")
            job = Job(
                int(number),
                int(leader) if leader.isdigit() else int(number),
                name,
                state,
                "" if start in ("N/A", "Unknown") else start,
                tuple(expand(nodes)),
                reason,
                _seconds(end),
                partition,
                int(priority) if priority.isdigit() else 0,
                user,
            )
            if tasks.startswith("[") and job.leader in arrays:
                each = expand(tasks.partition("%")[0].rstrip("]") + "]")
                found += [replace(job, task=_task(one)) for one in each]
            else:
                found.append(replace(job, task=_task(tasks)) if tasks else job)
    return found


def _task(text: str) -> int | None:
    return int(text) if text.isdigit() else None


def _seconds(moment: str) -> float | None:
    """The epoch seconds of a time that Slurm has printed, a local one; None if it is none."""
    try:
        return datetime.fromisoformat(moment).timestamp()
    except ValueError:
        return None


def expand(nodes: str) -> Iterator[str]:
    """The names in a list of nodes, as in `n[1-3,07],gpu[1-2]-[a]`."""
    for part in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", nodes):
        yield from _expand_one(part)


def _expand_one(text: str) -> Iterator[str]:
    before, bracket, rest = text.partition("[")
    if not bracket:
        yield text
        return
    inside, _, after = rest.partition("]")
    for item in inside.split(","):
        first, dash, last = item.partition("-")
        names = [item]
        if dash and first.isdigit() and last.isdigit():
            names = [f"{n:0{len(first)}}" for n in range(int(first), int(last) + 1)]
        for name in names:
            for end in _expand_one(after):
                yield f"{before}{name}{end}"


def steps_of_run(job: int, run_id: str, environ: Mapping[str, str]) -> list[str]:
    """The steps of a run in a job that is not its own. Raises CannotRun."""
    words = ("squeue", "--noheader", "--steps", f"--jobs={job}", "--format=%i|%j")
    try:
        lines = run(words, environ).splitlines()
    except UnknownJob:
        return []
    rows = [line.split("|", 1) for line in lines if "|" in line]
    return [step for step, name in rows if name.startswith(f"muster-{run_id}.")]


def check_version(environ: Mapping[str, str]) -> None:
    """Raises CannotRun if Slurm is too old."""
    if (found := version(environ)) < OLDEST:
        text = f"Slurm {'.'.join(map(str, found))} is too old: 22.05 or newer is needed"
        raise CannotRun(text, refused=True)


def configuration_problem(environ: Mapping[str, str]) -> str:
    """Why the commands do not know of a cluster here; "" if they do, or that is not known now."""
    path = environ.get("SLURM_CONF", "")
    if path and not os.path.exists(path):
        return f"there is no {path}, which SLURM_CONF names"
    try:
        version(environ)
    except CannotRun as error:
        if "DNS SRV lookup failed" in str(error):  # the last place that is looked at
            return "Slurm has no configuration here: set SLURM_CONF, or use a login node"
    return ""


def version(environ: Mapping[str, str]) -> tuple[int, ...]:
    """The release of Slurm, as in (22, 5, 8). Raises CannotRun."""
    text = run(("sbatch", "--version"), environ)
    return tuple(int(part) for part in re.findall(r"\d+", text)[:3])
