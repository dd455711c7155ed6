"""The command line without the resources it needs: one sentence and a documented exit code, never a
traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from muster.cli.main import cli
from muster.client.client import Client
from muster.service.backend import Backend
from muster.storage.home import Home
from support.embedded import embedded, variables_of
from support.server_thread import running_server

MANIFEST = """
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: few}
spec:
  replicatedJobs:
  - name: w
    template: {spec: {template: {spec: {containers: [{name: c, image: i, command: ["true"]}]}}}}
"""
#: Arguments with which each command prints something. Add new commands here.
PRINTS = {
    "run": "run -- seq 3",
    "adopt": "adopt --help",
    "ps": "ps",
    "status": "status last",
    "wait": "wait last",
    "cancel": "cancel last",
    "rm": "rm --help",
    "runs cancel": "runs cancel last",
    "runs list": "runs list",
    "runs resume": "runs resume --help",
    "runs adopt": "runs adopt --help",
    "runs scale": "runs scale --help",
    "runs show": "runs show last",
    "runs retry": "runs retry --help",
    "rerun": "rerun --help",
    "runs table": "runs table last",
    "runs suspend": "runs suspend --help",
    "runs wait": "runs wait last",
    "runs delete": "runs delete --help",
    "top": "top --help",
    "stacks": "stacks --help",
    "open": "open --help",
    "exec": "exec --help",
    "shell": "shell --help",
    "logs": "logs last",
    "outputs": "outputs last --json",
    "cp": "cp --help",
    "jobs create": "jobs create --json -- true",
    "jobs delete": "jobs delete --help",
    "jobs events": "jobs events seq",
    "jobs edit": "jobs edit seq --set description=x",
    "jobs list": "jobs list",
    "jobs show": "jobs show seq",
    "notify add": "notify add --help",
    "notify list": "notify list",
    "notify show": "notify show failures",
    "notify edit": "notify edit failures --on run.failed",
    "notify pause": "notify pause --help",
    "notify resume": "notify resume failures",
    "notify delete": "notify delete --help",
    "notify test": "notify test --help",
    "notify failed": "notify failed --json",
    "notify retry": "notify retry",
    "schedules create": "schedules create --help",
    "schedules list": "schedules list",
    "schedules show": "schedules show nightly",
    "schedules webhook": "schedules webhook --help",
    "schedules edit": "schedules edit nightly --overlap skip",
    "schedules pause": "schedules pause --help",
    "schedules resume": "schedules resume nightly",
    "schedules delete": "schedules delete --help",
    "schedules trigger": "schedules trigger --help",
    "explain": "explain -- true",
    "events": "events last",
    "simulate": "simulate --mtbf 2000h --hours 1 few.yaml",
    "image build": "image build --help",
    "image push": "image push --help",
    "cluster down": "cluster down --help",
    "cluster list": "cluster list --json",
    "cluster scale": "cluster scale --help",
    "cluster show": "cluster show --help",
    "cluster up": "cluster up --help",
    "node": "node --help",
    "ports": "ports",
    "shapes": "shapes",
    "check": "check -- true",
    "engines list": "engines list",
    "engines add hosts": "engines add hosts --help",
    "engines add container": "engines add container --help",
    "engines add slurm": "engines add slurm --help",
    "engines add oci": "engines add oci --help",
    "engines add kubernetes": "engines add kubernetes --help",
    "engines role": "engines role --help",
    "engines check": "engines check local",
    "engines remove": "engines remove --help",
    "env list": "env list --json",
    "env prune": "env prune --help",
    "disk": "disk",
    "prune": "prune --dry-run",
    "doctor": "doctor",
    "users whoami": "users whoami",
    "users list": "users list --json",
    "users add": "users add --help",
    "users change": "users change --help",
    "users disable": "users disable --help",
    "users enable": "users enable --help",
    "users keys list": "users keys list --json",
    "users keys add": "users keys add --help",
    "users keys delete": "users keys delete --help",
    "projects list": "projects list",
    "projects add": "projects add --help",
    "projects change": "projects change --help",
    "projects delete": "projects delete --help",
    "projects members": "projects members default --json",
    "projects add-member": "projects add-member --help",
    "projects remove-member": "projects remove-member --help",
    "iam suggest": "iam suggest few.yaml",
    "iam check": "iam check --help",
    "iam explain": "iam explain --help",
    "iam policies list": "iam policies list",
    "iam policies show": "iam policies show job-runs",
    "iam policies create": "iam policies create --help",
    "iam policies edit": "iam policies edit --help",
    "iam policies delete": "iam policies delete --help",
    "iam policies history": "iam policies history job-runs",
    "iam groups list": "iam groups list --json",
    "iam groups show": "iam groups show Administrators",
    "iam groups create": "iam groups create --help",
    "iam groups delete": "iam groups delete --help",
    "iam groups add": "iam groups add --help",
    "iam groups remove": "iam groups remove --help",
    "iam dynamic-groups list": "iam dynamic-groups list --json",
    "iam dynamic-groups show": "iam dynamic-groups show --help",
    "iam dynamic-groups create": "iam dynamic-groups create --help",
    "iam dynamic-groups edit": "iam dynamic-groups edit --help",
    "iam dynamic-groups delete": "iam dynamic-groups delete --help",
    "iam compartments list": "iam compartments list",
    "iam compartments create": "iam compartments create --help",
    "iam compartments move": "iam compartments move --help",
    "iam compartments delete": "iam compartments delete --help",
    "tokens list": "tokens list --json",
    "tokens create": "tokens create --help",
    "tokens revoke": "tokens revoke --help",
    "secrets list": "secrets list --json",
    "secrets set": "secrets set --help",
    "secrets rm": "secrets rm --help",
    "audit list": "audit list --json",
    "audit export": "audit export --help",
    "audit prune": "audit prune --help",
    "convert": "convert few.yaml",
    "schema": "schema",
    "node-program": "node-program",
    "server doctor": "server doctor --help",
    "server instance add": "server instance add --help",
    "server instance remove": "server instance remove --help",
    "server instance metadata": "server instance metadata --help",
    "login": "login --help",
    "oci-config": "oci-config --help",
    "logout": "logout --help",
    "context list": "context list",
    "context show": "context show",
    "context use": "context use --help",
    "completion": "completion bash",
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home with a run in it, and a folder with a manifest."""
    root = tmp_path_factory.mktemp("hostile")
    (root / "few.yaml").write_text(MANIFEST)
    client = Client(root)
    job, new = client.job(command=["seq", "1", "30000"], name="seq")
    client.start(client.prepare_run(job, new_job=new)).wait(60)
    client.create_notification("failures", "https://hooks.example.com/x")
    client.create_schedule("nightly", client.prepare_run(client.api.job("seq")), cron="0 3 * * *")
    yield root
    embedded(client).close()


@pytest.fixture(scope="module")
def reached(home: Path, request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """Variables with which commands use the home; with --over-http, through a server."""
    if not request.config.getoption("--over-http"):
        yield {}
        return
    with running_server(Backend(Home(home))) as server:
        yield variables_of(server.address())


@pytest.fixture
def shell(home: Path, reached: dict[str, str]) -> Any:
    """Run a line of sh, in which `muster` is the tested one. Returns the completed process."""

    def run(line: str, **environ: str) -> subprocess.CompletedProcess[str]:
        muster = f'muster() {{ "{sys.executable}" -m muster "$@"; }}; '
        env = {**os.environ, "MUSTER_HOME": str(home), **reached, **environ}
        argv = ["bash", "-c", muster + line]
        return subprocess.run(  # noqa: PLW1510
            argv, env=env, cwd=home, capture_output=True, text=True, errors="replace", timeout=120
        )

    return run


def leaves(command: click.Command, *path: str) -> Iterator[str]:
    if not isinstance(command, click.Group):
        yield " ".join(path)
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        assert inner is not None
        yield from leaves(inner, *path, name)


def test_every_command_is_tried() -> None:
    assert set(leaves(cli)) == set(PRINTS)


@pytest.mark.parametrize("line", PRINTS.values())
def test_full_standard_output_is_reported(shell: Any, line: str) -> None:
    done = shell(f"muster {line} > /dev/full")
    *output, last = done.stderr.splitlines()
    assert last == "error: cannot write to standard output: No space left on device", done.stderr
    assert done.returncode == 4
    assert "Traceback" not in str(output)


@pytest.mark.parametrize("line", PRINTS.values())
def test_a_pipe_without_a_reader_is_no_error(shell: Any, line: str) -> None:
    """The pipe has no reader from the start. `muster run` must not exit with 0 unless it has seen
    the run succeed."""
    done = shell(f"muster {line} > >(exec true)")
    assert done.returncode in ((0, 128 + signal.SIGPIPE) if line.startswith("run ") else (0,)), done
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("line", ["logs last", "logs last --json", "runs list", "events last"])
def test_head_ends_a_command_without_an_error(shell: Any, line: str) -> None:
    done = shell(f"set -o pipefail; muster {line} | head -1")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 1


def test_head_of_a_running_run_detaches(shell: Any, home: Path) -> None:
    line = "run --name endless -- sh -c 'while seq 1000; do :; done'"
    done = shell(f"muster {line} | head -1; echo ${{PIPESTATUS[0]}}")
    assert done.stdout.splitlines()[1:] == [str(128 + signal.SIGPIPE)]
    assert "Detached from endless-1; still running" in done.stderr
    run = Client(home).run("endless-1")
    assert not run.done
    run.cancel().wait(60)


def test_the_exit_code_of_a_run_does_not_depend_on_a_reader(shell: Any) -> None:
    line = "run --json -- sh -c 'exit 7'"
    assert shell(f"muster {line} > >(exec true)").returncode == 1
    assert shell("muster runs wait last > >(exec true)").returncode == 1
    assert shell("muster runs delete last").returncode == 0


@pytest.mark.parametrize("where", ["2>/dev/full", "2> >(exec true)", "2>&-"])
def test_the_exit_code_does_not_depend_on_standard_error(shell: Any, where: str) -> None:
    """The exit code is right even if standard error is full, broken or closed."""
    assert shell(f"muster runs show missing {where}").returncode == 2
    assert shell(f"muster runs list --state nosuch {where}").returncode == 2
    done = shell(f"muster run -- sh -c 'echo a; exit 3' {where}")
    assert (done.returncode, done.stdout) == (1, "workers/0 | a\n")
    assert shell(f"muster runs delete last {where}").returncode == 0


@pytest.mark.parametrize("line", ["runs list", "runs show last", "logs last", "run -- true"])
def test_all_standard_streams_may_be_closed(shell: Any, line: str) -> None:
    assert shell(f"muster {line} <&- >&- 2>&-").returncode == 0


def test_a_deleted_working_directory_is_reported(shell: Any, tmp_path: Path) -> None:
    names = ("run", "runs list", "jobs list", "explain", "logs", "check", "convert", "image build")
    for line in [*(PRINTS[name] for name in names), "run train.py", "run .", "run git+https://x/y"]:
        deleted = tmp_path / "deleted"
        done = shell(f"mkdir {deleted}; cd {deleted}; rmdir {deleted}; muster {line}")
        assert "Traceback" not in done.stderr, (line, done.stderr)
        assert done.returncode in (0, 2, 4), (line, done)
        if done.returncode == 4:
            expected = "error: the working directory was deleted; `cd` to another one\n"
            assert done.stderr.endswith(expected), line


@pytest.mark.parametrize("files", [64, 23, 16, 10])
def test_a_low_limit_of_open_files_is_enough_for_reading(shell: Any, files: int) -> None:
    """Reading needs few open files; a run's need depends on its nodes."""
    for line in ("runs list", "runs show seq-1", "logs seq-1", "events seq-1", "jobs list"):
        done = shell(f"ulimit -n {files}; muster {line}")
        assert done.returncode == 0, (line, done.stderr)
    for line in ("run --nodes 40 -- true", "run -- true", "check -- true"):
        done = shell(f"ulimit -n {files}; muster {line}")
        assert "Traceback" not in done.stderr
        assert "internal error" not in done.stderr
        if done.returncode:
            assert "Too many open files" in done.stdout + done.stderr, (line, done)
            assert "`ulimit -n 1024`" in done.stdout + done.stderr


@pytest.mark.embedded("the server writes the files")
def test_a_limit_of_file_sizes_is_reported(shell: Any) -> None:
    done = shell("export MUSTER_HOME=$PWD/other; ulimit -f 1; muster run -- true")
    assert done.returncode == 2
    assert "files may not exceed " in done.stderr
    assert "`ulimit -f unlimited`" in done.stderr


def test_logs_of_more_streams_than_open_files_are_complete(shell: Any) -> None:
    assert shell("muster run --nodes 20 -- sh -c 'echo $NODE_RANK'").returncode == 0
    done = shell("ulimit -n 24; muster logs last --stream stdout")
    assert sorted(done.stdout.split()[2::3], key=int) == [str(rank) for rank in range(20)], done


@pytest.mark.parametrize(
    "environ",
    [
        {"LC_ALL": "C"},
        {"LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
        {"PYTHONIOENCODING": "ascii"},
        {"LC_ALL": "C", "PYTHONIOENCODING": "latin-1:strict"},
    ],
)
def test_characters_missing_in_the_encoding_are_escaped(
    shell: Any, environ: dict[str, str]
) -> None:
    shell("muster run --name g -- true; muster jobs edit g --set description='Grüße 雪…'")
    done = shell("muster jobs list; muster runs list --tag 雪; muster runs show 雪", **environ)
    assert "Traceback" not in done.stderr
    assert "no run named" in done.stderr
    assert "\\u96ea" in done.stdout or "雪" in done.stdout, done.stdout


@pytest.mark.parametrize("temporary", ["/nowhere/at/all", "/dev/null", "/proc"])
def test_a_missing_temporary_folder_is_no_error(shell: Any, temporary: str) -> None:
    done = shell("muster run -- true && muster check -- true", TMPDIR=temporary)
    assert done.returncode == 0, done


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change its user id")
def test_a_missing_home_directory_is_reported() -> None:
    """An id without an entry in the user database, as in some containers."""
    code = (
        "import os, sys; from muster.storage.home import default_home\n"
        "import muster.cli.main as main, muster.cli.env, click\n"
        "for name in ('HOME', 'MUSTER_HOME', 'XDG_STATE_HOME'): os.environ.pop(name, None)\n"
        "os.setuid(54321); sys.argv = ['muster', 'env', 'list']; main.main()\n"
    )
    argv = [sys.executable, "-c", f"import muster.storage.environments, msgspec.structs\n{code}"]
    done = subprocess.run(argv, check=False, capture_output=True, text=True)
    assert done.returncode == 2, done
    assert done.stderr.startswith("error: MUSTER_HOME: "), done.stderr
    assert "set it to a full path" in done.stderr


def test_a_home_with_a_name_that_is_too_long_is_reported(shell: Any) -> None:
    done = shell("muster runs list", MUSTER_HOME=f"/tmp/{'h' * 300}")
    assert done.returncode in (2, 4)
    assert "File name too long" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", ["lease", "life"])
def test_folders_and_links_in_place_of_a_suspended_run_s_files(
    shell: Any, home: Path, tmp_path: Path, name: str
) -> None:
    run = shell("muster run --detach -- sleep 1000").stdout.strip()
    assert shell(f"muster runs suspend {run}").returncode == 0
    place = home / "runs" / run / name
    place.unlink()
    place.mkdir()
    done = shell(f"muster runs resume {run}")
    assert done.returncode in (2, 4)
    assert f"{name}: Is a directory (a file is expected there: move the folder away)" in done.stderr
    assert "Traceback" not in done.stderr
    place.rmdir()
    # following a link would change the file of another user
    theirs = tmp_path / "theirs"
    theirs.write_text("theirs")
    place.symlink_to(theirs)
    assert shell(f"muster runs resume {run}").returncode == 0
    assert shell(f"muster runs cancel {run}").returncode == 0
    assert theirs.read_text() == "theirs"
