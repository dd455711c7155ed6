"""The scripts that are submitted, and the options that they pass on."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from engines.conftest import PlanOf
from muster.engines.remote.hosts import first_parts
from muster.engines.slurm import script
from muster.engines.slurm.options import flags, merged, option_problems


def lines(text: str) -> list[str]:
    return [line.removeprefix("#SBATCH ") for line in text.splitlines() if "#SBATCH" in line]


def script_of(plan: Any, **defaults: Any) -> str:
    parts = script.components(plan, range(len(plan.nodes)), defaults)
    return script.batch_script("muster-r1.0", "demo-1", "/shared/r1", parts)


def test_groups_with_equal_needs_are_one_component(plan_of: PlanOf) -> None:
    group = {"nodes": 2, "command": ["true"]}
    plan = plan_of(
        command=None,
        node_groups=[
            {"name": "a", **group},
            {"name": "b", **group, "resources": {"cpus": 1.5, "memory": "1GiB", "gpus": 2}},
            {"name": "c", **group, "nodes": 1},
        ],
    )
    parts = script.components(plan, range(5), {"account": "lab"})
    assert [part.slots for part in parts] == [(0, 1, 4), (2, 3)]
    text = script_of(plan, account="lab")
    first, second = " ".join(lines(text)).split(" hetjob ")
    assert first.endswith("--nodes=3 --ntasks-per-node=1 --no-kill --account=lab")
    of_b = "--cpus-per-task=2 --mem=1048576K --gpus-per-node=2 --account=lab"
    assert second == f"--nodes=2 --ntasks-per-node=1 --no-kill {of_b}"
    assert text.endswith(
        "--het-group=0 --nodes=3 --ntasks=3 --ntasks-per-node=1 sh /shared/r1/node.sh 0 0-1 4-4 2-3"
        " : --het-group=1 --nodes=2 --ntasks=2 --ntasks-per-node=1 --cpus-per-task=2"
        " sh /shared/r1/node.sh 0 0-1 4-4 2-3\n"
    )


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, []),
        ({"max_runtime": "10m"}, ["--time=16"]),  # 10 min, 10 s to end, 5 min to start and collect
        ({"max_runtime": "10m", "checkpoint": {"grace": "2m"}}, ["--time=18"]),
        ({"max_runtime": "10m", "slurm": {"time": "1-00"}}, ["--time=1-00"]),
    ],
)
def test_a_job_ends_after_its_run(
    plan_of: PlanOf, spec: dict[str, Any], expected: list[str]
) -> None:
    found = lines(script_of(plan_of(**spec)))
    assert [one for one in found if one.startswith("--time")] == expected


def test_a_job_replaces_defaults_of_the_profile(plan_of: PlanOf) -> None:
    plan = plan_of(slurm={"partition": "gpu", "spares": 1, "extra": ["--mail-type=END"]})
    found = lines(script_of(plan, partition="cpu", account="lab", extra=["--nice=5"]))
    assert "--partition=gpu" in found and "--account=lab" in found and "--exclusive" not in found
    assert found[-2:] == ["--nice=5", "--mail-type=END"]
    assert "--nodes=2 --ntasks-per-node=1" in found  # with the spare one


def test_gpus_are_given_once(plan_of: PlanOf) -> None:
    plan = plan_of(resources={"gpus": 2}, slurm={"gres": "gpu:a100:2"})
    assert [one for one in lines(script_of(plan)) if "gpu" in one] == ["--gres=gpu:a100:2"]


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ({"time": "soon"}, "time"),
        ({"account": "a\nb"}, "account"),
        ({"account": ""}, "account"),
        ({"partition": 'a"b'}, "partition"),
        ({"exclusive": "yes"}, "exclusive"),
        ({"spares": -1}, "spares"),
        ({"spares": True}, "spares"),
        ({"spares": 1025}, "spares"),
        ({"extra": "--x"}, "extra"),
        ({"extra": ["x"]}, "extra[0]"),
        ({"extra": ["--ok", "--nodes=3"]}, "extra[1]"),
        ({"extra": ["-N3"]}, "extra[0]"),
        ({"extra": ["--array 1-3"]}, "extra[0]"),
        ({"extra": ["--array=1-3"]}, "extra[0]"),
        ({"extra": ["--requeue"]}, "extra[0]"),
        ({"extra": ["--requ"]}, "extra[0]"),
        ({"extra": ["--outp=/x"]}, "extra[0]"),
        ({"extra": ["-HJfoo"]}, "extra[0]"),
        ({"extra": ["-H"]}, "extra[0]"),
        ({"extra": ["--comment x -o /x"]}, "extra[0]"),
        ({"extra": ["--comment=x\n#SBATCH --array=1-3"]}, "extra[0]"),
        ({"extra": ["--"]}, "extra[0]"),
        ({"extra": ["--clusters=other"]}, "extra[0]"),
        ({"extra": ["--cluster=other"]}, "extra[0]"),
        ({"extra": ["--signal=USR1@60"]}, "extra[0]"),
    ],
)
def test_options_that_cannot_be_passed_on(options: dict[str, Any], path: str) -> None:
    assert [problem.path for problem in option_problems(options)] == [path]


@pytest.mark.parametrize("spares", [0, 1024])
def test_spare_nodes(spares: int) -> None:
    assert not list(option_problems({"spares": spares}))


def test_the_first_job_that_starts_has_the_run(tmp_path: Path) -> None:
    """If an answer was lost, there may be two."""
    (tmp_path / "srun").write_text(f"#!/bin/sh\necho $SLURM_JOB_ID >>{tmp_path}/started\n")
    (tmp_path / "srun").chmod(0o755)
    part = script.Component((0,), ())
    text = script.batch_script("muster-r1.0", "demo", str(tmp_path), [part])
    for job in ("5", "6", "5"):  # it starts again on another node
        env = {"SLURM_JOB_ID": job, "PATH": f"{tmp_path}:/usr/bin:/bin"}
        subprocess.run(["sh", "-c", text], env=env, check=True)
    assert (tmp_path / "started").read_text().split() == ["5", "5"]
    assert (tmp_path / "job-0").readlink() == Path("5")


def test_what_is_refused_says_what_to_write() -> None:
    (short,) = option_problems({"extra": ["-HJfoo"]})
    assert "write the long form" in short.hint
    (own,) = option_problems({"extra": ["--requ"]})
    assert own.message == "--requeue is set by Muster"
    (other,) = option_problems({"extra": ["--cluster=other"]})
    assert other.message == "--clusters is not possible with Muster" and "SLURM_CONF" in other.hint
    assert not list(option_problems({"extra": ["--nodefile=x", "--wait-all-nodes=1", "--hold"]}))


def test_values_stay_one_word(plan_of: PlanOf) -> None:
    extra = ["--comment=x -o /x", "--dependency=a#b", "--prefer=a\\b"]
    found = lines(script_of(plan_of(slurm={"partition": "a --wrap=b", "extra": extra})))
    assert found[-4:] == [
        '"--partition=a --wrap=b"',
        '"--comment=x -o /x"',
        '"--dependency=a#b"',
        r'"--prefer=a\\b"',
    ]


@pytest.mark.parametrize("time", ["90", "12:00", "12:00:00", "2-00", "2-00:30:00", "UNLIMITED"])
def test_time_limits_of_slurm(time: str) -> None:
    assert not list(option_problems({"time": time}))
    assert flags(merged({"time": "1"}, {"time": time})) == [f"--time={time}"]


def test_replicas_of_an_array_are_tasks_of_one_job(plan_of: PlanOf, tmp_path: Path) -> None:
    plan = plan_of(nodes=2, replicas=9, parallelism=3)
    jobs = first_parts(plan)
    assert script.batches(plan, jobs, {}) == [[[0, 1], [2, 3], [4, 5]]]
    assert script.batches(plan, [jobs[0], jobs[2]], {}) == [[jobs[0]], [jobs[2]]]
    parts = script.components(plan, jobs[0], {})
    text = script.batch_script("muster-r1.4", "demo-1", str(tmp_path), parts, 3)
    assert {"--array=0-2", f"--output={tmp_path}/job-4_%a.log"} <= {*lines(text)}
    srun = tmp_path / "srun"
    srun.write_text('#!/bin/sh\necho "$@"\n')
    srun.chmod(0o755)
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_JOB_ID": "12", "SLURM_ARRAY_TASK_ID": "2"}
    done = subprocess.run(["sh", "-c", text], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.endswith(f"sh {tmp_path}/node.sh 6 4-5\n")
    assert (tmp_path / "job-4_2").readlink() == Path("12")


def test_ranges() -> None:
    assert script.ranges([0, 1, 2, 5, 7, 8]) == "0-2 5-5 7-8"


@pytest.mark.parametrize(("task", "slot"), [(0, 3), (1, 4), (2, 9), (3, None)])
def test_each_task_serves_a_slot(tmp_path: Path, task: int, slot: int | None) -> None:
    program = tmp_path / "python"
    program.write_text('#!/bin/sh\necho "$@ with $(cat)"\n')
    program.chmod(0o755)
    (tmp_path / "environment").write_text(script.environment_script({"A": "it's\n1"}))
    for number in (3, 4, 9):
        (tmp_path / f"1-{number}.settings").write_text(f"settings {number}")
    text = script.node_script(str(tmp_path), str(program), "/p.pyz", "/nodes/r1")
    (tmp_path / "node.sh").write_text(text)
    argv = ["sh", str(tmp_path / "node.sh"), "1", "3-4", "9-9"]
    env = {"SLURM_PROCID": str(task), "PATH": "/usr/bin:/bin"}
    assert subprocess.run(argv, env=env, check=False).returncode == 0
    logs = {path.name: path.read_text() for path in tmp_path.glob("*.log")}
    said = f"-IS /p.pyz serve /nodes/r1-1-{slot} with settings {slot}\n"
    assert logs == ({} if slot is None else {f"1-{slot}.log": said})
    assert all(path.stat().st_mode & 0o077 == 0 for path in tmp_path.glob("*.log"))


def test_a_server_that_was_killed_is_started_again(tmp_path: Path) -> None:
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\necho up\n[ -e again ] || { touch again; kill -KILL $$; }\n")
    program.chmod(0o755)
    for name in ("environment", "1-0.settings"):
        (tmp_path / name).touch()
    text = script.node_script(str(tmp_path), str(program), "/p.pyz", "/nodes/r1")
    (tmp_path / "node.sh").write_text(text)
    env = {"PATH": "/usr/bin:/bin"}
    done = subprocess.run(["sh", str(tmp_path / "node.sh"), "1", "0-0"], env=env, check=False)
    assert done.returncode == 0
    assert (tmp_path / "1-0.log").read_text().splitlines().count("up") == 2


@pytest.mark.parametrize(
    ("given_up", "told", "code", "left"),
    [
        (True, True, 143, False),
        (True, True, 0, False),
        (True, False, 0, True),  # it may have left files that could not be copied
        (False, True, 143, True),
        (True, True, 75, True),  # another one serves there
    ],
)
def test_files_of_a_server_that_was_given_up(
    tmp_path: Path, given_up: bool, told: bool, code: int, left: bool
) -> None:
    program = tmp_path / "python"
    remove = f"rm {tmp_path}/1-0.settings; " if given_up else ""
    term = "kill -TERM $PPID; " if told else ""
    program.write_text(f'#!/bin/sh\nmkdir "$4"\n{remove}{term}exit {code}\n')
    program.chmod(0o755)
    for name in ("environment", "1-0.settings"):
        (tmp_path / name).touch()
    text = script.node_script(str(tmp_path), str(program), "/p.pyz", str(tmp_path / "r1"))
    (tmp_path / "node.sh").write_text(text)
    argv, env = ["sh", str(tmp_path / "node.sh"), "1", "0-0"], {"PATH": "/usr/bin:/bin"}
    assert subprocess.run(argv, env=env, check=False).returncode == code
    assert (tmp_path / "r1-1-0").exists() is left


def test_a_python_that_is_missing_is_named(tmp_path: Path) -> None:
    for name in ("environment", "1-0.settings"):
        (tmp_path / name).touch()
    text = script.node_script(str(tmp_path), "/no/python", "/p.pyz", "/nodes/r1")
    (tmp_path / "node.sh").write_text(text)
    argv = ["sh", str(tmp_path / "node.sh"), "1", "0-0"]
    env = {"SLURM_PROCID": "0", "PATH": "/usr/bin:/bin", "SLURMD_NODENAME": "n7"}
    assert subprocess.run(argv, env=env, check=False).returncode == 127
    text = (tmp_path / "1-0.log").read_text()
    assert text == "muster: there is no /no/python on n7; set `python` in the profile\n"


def test_variables_of_the_submitter() -> None:
    environ = {"B": "x y", "A": "$HOME", "SLURM_JOB_ID": "1", "CUDA_VISIBLE_DEVICES": "0"}
    assert script.environment_script(environ) == "export A='$HOME'\nexport B='x y'\n"


SHELLS = [path for name in ("sh", "dash", "bash") if (path := shutil.which(name))]


@pytest.mark.parametrize("shell", SHELLS)
def test_variables_of_the_submitter_that_shells_use(tmp_path: Path, shell: str) -> None:
    """Also those with the names of the script's own."""
    program, link = tmp_path / "python", tmp_path / "sh"
    program.write_text('#!/bin/sh\necho "$@ with $(cat)"\nexec env\n')
    program.chmod(0o755)
    link.symlink_to(shell)  # bash is another shell by this name
    own = ("server", "slot", "number", "code", "ended", "range", "first", "last", "task")
    of_shells = ("OPTIND", "UID", "EUID", "PPID", "SHELLOPTS", "BASHOPTS", "BASH_VERSINFO", "IFS")
    environ = dict.fromkeys((*own, *of_shells, "LINENO", "RANDOM", "_"), "x")
    (tmp_path / "environment").write_text(script.environment_script(environ))
    (tmp_path / "1-0.settings").write_text("settings")
    text = script.node_script(str(tmp_path), str(program), "/p.pyz", "/nodes/r1")
    (tmp_path / "node.sh").write_text(text)
    argv = [str(link), str(tmp_path / "node.sh"), "1", "0-0"]
    env = {"PATH": "/usr/bin:/bin", "SLURMD_NODENAME": "n7"}
    assert subprocess.run(argv, env=env, check=False).returncode == 0
    first, *others = (tmp_path / "1-0.log").read_text().splitlines()
    assert first == "-IS /p.pyz serve /nodes/r1-1-0 with settings"
    assert {f"{name}=x" for name in own} | {"MUSTER_NODE_HOST=n7"} <= {*others}
