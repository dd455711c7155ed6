"""What Slurm's commands print, and what is said of it."""

from __future__ import annotations

import errno
import os
from datetime import datetime
from pathlib import Path

import pytest
from msgspec.structs import replace

from muster.engines.slurm.client import (
    CannotRun,
    Job,
    client_environ,
    configuration_problem,
    expand,
    parse_details,
    parse_jobs,
    submit,
    with_positions,
)
from muster.engines.slurm.reasons import (
    expected_start,
    how_it_ended,
    is_news,
    most_telling,
    place_in_line,
    why_it_ends,
    why_it_waits,
    worst,
)
from muster.lifecycle.status import Reason


@pytest.mark.parametrize(
    ("nodes", "names"),
    [
        ("", []),
        ("n1", ["n1"]),
        ("n[1-3]", ["n1", "n2", "n3"]),
        ("n[08-10,12],login", ["n08", "n09", "n10", "n12", "login"]),
        ("r[1-2]n[1-2]-ib", ["r1n1-ib", "r1n2-ib", "r2n1-ib", "r2n2-ib"]),
        ("(null)", ["(null)"]),
    ],
)
def test_lists_of_nodes(nodes: str, names: list[str]) -> None:
    assert list(expand(nodes)) == names


def test_lines_of_squeue() -> None:
    text = (
        "12|12+0|muster-r1.0|RUNNING|2026-01-02T03:04:05|2026-01-02T04:00:00|gpu|7|1000|n[1-2]|"
        "None\n13|12+1|muster-r1.0|PENDING|N/A|N/A|gpu|7|1000||Nodes required for job are DOWN, "
        "DRAINED|x\n"
        "nonsense\n"
    )
    first, second = parse_jobs(text)
    end = datetime.fromisoformat("2026-01-02T04:00:00").timestamp()
    started = ("RUNNING", "2026-01-02T03:04:05", ("n1", "n2"), "None", end, "gpu", 7, "1000")
    assert first == Job(12, 12, "muster-r1.0", *started)
    assert (second.id, second.leader, second.waits, second.start) == (13, 12, True, "")
    assert second.reason == "Nodes required for job are DOWN, DRAINED|x"


def job(state: str = "PENDING", reason: str = "None", start: str = "") -> Job:
    return Job(7, 7, "muster-r1.0", state, start, (), reason)


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("None", "Slurm has not looked at it yet"),
        ("Resources", "nodes are not free"),
        ("(Priority)", "jobs of higher priority come first"),
        ("JobHeldUser", "it is held: `scontrol release 7` releases it"),
        ("QOSMaxJobsPerUserLimit", "a limit of its account or QOS is reached (QOSMaxJobs"),
        ("ReqNodeNotAvail, UnavailableNodes:n1", "a node that it needs is not available"),
        ("Nodes required for job are DOWN", "Nodes required for job are DOWN"),
    ],
)
def test_why_a_job_waits(reason: str, said: str) -> None:
    text = why_it_waits(job(reason=reason))
    assert text.startswith("Slurm job 7: ") and said in text


def test_the_component_that_will_never_start_is_told() -> None:
    reasons = ["None", "Resources", "PartitionTimeLimit", "Priority", "JobHeldUser"]
    assert most_telling(job(reason=one) for one in reasons).reason == "PartitionTimeLimit"
    assert most_telling(job(reason=one) for one in reasons[:2]).reason == "Resources"
    assert most_telling(job(reason=one) for one in reasons[3:]).reason == "JobHeldUser"


def test_the_start_is_told_to_the_minute() -> None:
    assert expected_start(job(start="2026-01-02T03:04:05")) == ", start expected 2026-01-02 03:04"
    assert (
        expected_start(job()) == expected_start(job("RUNNING", start="2026-01-02T03:04:05")) == ""
    )


@pytest.mark.parametrize(
    ("reason", "start", "news"),
    [
        ("Resources", "2026-01-02T03:59:59", False),
        ("Resources", "2026-01-02T04:01:00", False),  # it moves with every look
        ("Resources", "2026-01-02T04:02:00", True),
        ("Resources", "2026-01-02T03:50:00", True),
        ("Resources", "", False),
        ("Priority", "2026-01-02T03:59:59", True),
    ],
)
def test_what_has_not_changed_is_told_once(reason: str, start: str, news: bool) -> None:
    told = job(reason="Resources", start="2026-01-02T03:59:59")
    assert is_news(told, job(reason=reason, start=start)) is news
    assert is_news(None, told) and is_news(job(reason="Resources"), told)


def test_how_many_jobs_come_before() -> None:
    lines = (
        "7|7|a|PENDING|N/A|N/A|gpu|50|1000||Priority",
        "8|8+0|b|PENDING|N/A|N/A|gpu|60|2000||Resources",
        "9|8+1|b|PENDING|N/A|N/A|gpu|60|2000||Resources",
        "5|5|c|PENDING|N/A|N/A|gpu|50|2000||Priority",
        "6|6|d|PENDING|N/A|N/A|gpu|70|2000||Dependency",
        "4|4|e|PENDING|N/A|N/A|gpu|0|2000||JobHeldUser",
        "3|3|f|PENDING|N/A|N/A|cpu|90|2000||Priority",
        "2|2|g|RUNNING|N/A|N/A|gpu|90|2000|n1|None",
        "10|10|h|PENDING|N/A|N/A|gpu|50|2000||Priority",
    )
    every = parse_jobs("\n".join(lines))
    (own,) = with_positions(every[:1], every)
    assert place_in_line(own) == ", 2 jobs of partition gpu before it"
    assert with_positions(every[:1], every[:1])[0].ahead is None  # others may be hidden
    assert is_news(every[0], own) and is_news(own, replace(own, ahead=1))
    assert not is_news(own, own)
    assert not is_news(replace(own, ahead=200), replace(own, ahead=190))


def test_tasks_of_arrays() -> None:
    line = "{}|{}|a|PENDING|N/A|N/A|gpu|50|1000||Resources"
    text = "\n".join(
        (line.format(7, "7_[2-3,9%4]"), line.format(8, "7_1"), line.format(5, "5_[1-9]"))
    )
    assert [job.key for job in parse_jobs(text, [7])] == ["7_2", "7_3", "7_9", "7_1", "5"]
    (task,) = parse_details("JobId=8 ArrayJobId=7 ArrayTaskId=1 JobName=a JobState=TIMEOUT ")
    assert (task.id, task.key, task.state) == (8, "7_1", "TIMEOUT")


def test_details_of_jobs() -> None:
    line = (
        "JobId=7 JobName=muster-r1.0 UserId=ana(1000) JobState=COMPLETED Reason=None "
        "Dependency=(null) StartTime=2026-01-02T03:04:05 EndTime=2026-01-02T03:05:05 "
        "PreemptTime={} NodeList=n[1-2] "
    )
    lost, other = parse_details("\n".join(map(line.format, ("2026-01-02T03:05:00", "None"))))
    assert how_it_ended("7", lost) == (Reason.PREEMPTED, "Slurm job 7 was preempted")
    assert how_it_ended("7", other) == (Reason.NODE_LOST, "Slurm job 7 has ended")
    assert worst([other, lost]) is lost and worst([]) is None
    assert why_it_ends("7", [other]) is None
    assert why_it_ends("7", [other, lost]) == (Reason.PREEMPTED, "Slurm job 7 was preempted")
    late = replace(other, state="COMPLETING", reason="TimeLimit")
    assert why_it_ends("7", [late]) == (Reason.DEADLINE, "Slurm job 7 reached its time limit")


@pytest.mark.parametrize(
    ("state", "reason", "said"),
    [
        ("TIMEOUT", Reason.DEADLINE, "Slurm job 7 reached its time limit"),
        ("OUT_OF_MEMORY", Reason.OUT_OF_MEMORY, "Slurm job 7 exceeded its memory"),
        ("PREEMPTED", Reason.PREEMPTED, "Slurm job 7 was preempted"),
        ("CANCELLED", Reason.CANCELED, "Slurm job 7 was canceled in Slurm"),
        ("NODE_FAIL", Reason.NODE_LOST, "Slurm job 7 lost a node"),
        ("SOMETHING_NEW", Reason.NODE_LOST, "Slurm job 7 is SOMETHING_NEW"),
        (None, Reason.NODE_LOST, "Slurm does not know job 7 any more"),
    ],
)
def test_how_a_job_ended(state: str | None, reason: Reason, said: str) -> None:
    assert how_it_ended("7", None if state is None else job(state)) == (reason, said)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "sbatch: unrecognized option '--nosuchflag'\n"
            'Try "sbatch --help" for more information\n',
            "unrecognized option '--nosuchflag'",
        ),
        (
            "sbatch: error: invalid partition specified: gpu\n"
            "sbatch: error: Batch job submission failed: Invalid partition name specified\n",
            "invalid partition specified: gpu",
        ),
        (
            "sbatch: error: Memory specification can not be satisfied\nsbatch: error: Batch job "
            "submission failed: Requested node configuration is not available\n",
            "Memory specification can not be satisfied; "
            "Requested node configuration is not available",
        ),
        ("sbatch: error: Batch job submission failed: Access denied\n", "Access denied"),
        ("", "sbatch has failed"),
    ],
)
def test_why_slurm_refuses(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "text").write_text(text)
    program = tmp_path / "sbatch"
    program.write_text(f"#!/bin/sh\ncat {tmp_path}/text >&2\nexit 1\n")
    program.chmod(0o755)
    with pytest.raises(CannotRun) as error:
        submit("", {"PATH": f"{tmp_path}:/usr/bin:/bin"})
    assert str(error.value) == said and error.value.refused


@pytest.mark.parametrize(("number", "refused"), [(errno.ENOENT, True), (errno.EAGAIN, False)])
def test_what_passes_is_no_refusal(
    monkeypatch: pytest.MonkeyPatch, number: int, refused: bool
) -> None:
    def cannot(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("subprocess.run", cannot)
    with pytest.raises(CannotRun) as error:
        submit("", {})
    assert error.value.refused is refused


def test_a_machine_without_a_configuration(tmp_path: Path) -> None:
    program = tmp_path / "sbatch"
    text = "sbatch: error: fetch_config: DNS SRV lookup failed"
    program.write_text(f"#!/bin/sh\necho '{text}' >&2\nexit 1\n")
    program.chmod(0o755)
    environ = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    assert "set SLURM_CONF" in configuration_problem(environ)
    program.write_text("#!/bin/sh\necho 'sbatch: error: Connection refused' >&2\nexit 1\n")
    assert configuration_problem(environ) == ""  # its controller may be away
    missing = f"{tmp_path}/slurm.conf"
    assert missing in configuration_problem({**environ, "SLURM_CONF": missing})


#: How Slurm is to print times, and the tasks of arrays.
OWN = ("SLURM_TIME_FORMAT", "SLURM_BITSTR_LEN")


def test_slurm_gets_no_variables_that_it_would_keep() -> None:
    environ = {
        "PATH": "/bin",
        "PASSWORD": "x",
        "SBATCH_ACCOUNT": "lab",
        "SBATCH_JOB_NAME": "mine",
        "SBATCH_CLUSTERS": "other",
        "SLURM_CLUSTERS": "other",
        "SBATCH_SIGNAL": "B:USR1@60",
        "SBATCH_EXPORT": "NONE",
        "SLURM_JOB_ID": "3",
        "SLURM_CONF": "/c",
    }
    found = client_environ(environ)
    assert found.keys() == {"PATH", "SBATCH_ACCOUNT", "SLURM_CONF", *OWN}
