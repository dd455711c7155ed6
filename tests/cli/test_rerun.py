"""`muster rerun`."""

from __future__ import annotations

from pathlib import Path

import pytest

import muster
from muster.client.client import Client
from muster.client.run import JobRun
from muster.errors import InvalidInput
from support.command import muster as command
from support.command import output_of
from support.faults import until
from support.plugins import install_processes, plug_in

#: Counts up in a volume, as programs do with checkpoints.
COUNTS = """
file="$MUSTER_MOUNT_COUNT/number"
if [ "$RANK" = 0 ]; then
    read -r number 2>/dev/null < "$file" || number=0
    echo "$WORLD_SIZE go on from $number with $1"
    echo $((number + 1)) > "$file"
fi
exit "$CODE"
"""


@pytest.fixture
def run(own_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> JobRun:
    """A run that has failed."""
    monkeypatch.chdir(tmp_path)
    Path("count.sh").write_text(COUNTS)
    flags = ("--mount", "volume:count", "--env", "CODE=3", "--tag", "team=vision")
    command("run", "count.sh", "--run-name", "first", *flags, "--", "0.1", code=1)
    return Client().run("last")


def said(done: str) -> list[str]:
    return [line for line in done.splitlines() if line.startswith("note: ")]


def test_a_run_continues_with_changes(run: JobRun) -> None:
    planned = command("rerun", "first", "--nodes", "2", "--dry-run", code=0)
    assert "2 nodes" in planned.stdout
    assert Client().run("last").name == "count-1"
    done = command("rerun", "first", "--env", "CODE=0", "--nodes", "2", "--", "0.2", code=0)
    differs = "note: differs from count-1: node_groups[workers]"
    assert said(done.stderr) == [
        "note: runs count-1 again (FAILED)",
        f"{differs}.nodes: 1 -> 2",
        f"{differs}.args: 0.1 -> 0.2",
        f"{differs}.env.CODE: 3 -> 0",
    ]
    assert done.stdout == "workers/0 | 2 go on from 1 with 0.2\n"
    again = Client().run("last")
    assert (again.name, again.rerun_of, again.job_id) == ("count-2", "count-1", run.job_id)
    assert again.display_name is None
    assert again.tags == {"team": "vision", "muster-rerun-of": "count-1"}
    assert "note: runs count-1 again (FAILED)" in output_of("status", "last")
    # what that run was started with counts for the next one
    third = command("rerun", "last", "--run-name", "third", "-d", code=0)
    assert Client().run("third").wait().node_count == 2
    assert Client().run(third.stdout.strip()).rerun_of == "count-2"


def test_another_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    install_processes(tmp_path / "site")
    plug_in(monkeypatch, tmp_path / "site")
    request.getfixturevalue("run")  # after that, so that its supervisors know the engine
    words = ("--engine", "processes", "--env", "CODE=0")
    refused = command("rerun", "last", *words, code=2).stderr
    assert "engine processes cannot mount directories" in refused
    command("run", "--", "true", code=0)
    done = command("rerun", "last", "--engine", "processes", code=0)
    assert said(done.stderr) == [
        "note: runs true-1 again (SUCCEEDED on engine local)",
        "note: differs from true-1: engine: local -> processes",
    ]
    assert "SUCCEEDED on engine local" in output_of("status", "last")


def test_changed_code(run: JobRun) -> None:
    Path("count.sh").write_text("echo mended")
    before = command("rerun", "first", code=1)
    text = "note: uses the code of count-1; count.sh has changed since: --update-code uses it"
    assert text in said(before.stderr)
    done = command("rerun", "first", "--update-code", code=0)
    assert done.stdout == "workers/0 | mended\n"
    assert "note: uses count.sh as it is now" in said(done.stderr)


def test_what_is_wrong_is_said_at_once(run: JobRun) -> None:
    flags = ("--nodes", "0", "--engine", "nope", "--set", "resources.gpus=x")
    done = command("rerun", "last", *flags, code=2)
    assert done.stderr.splitlines() == [
        "error: --nodes 0: must be at least 1, not 0",
        "error: --set resources.gpus=x: must be a whole number, not 'x'",
        "error: --engine nope: no engine named 'nope' is installed "
        "(installed: local, container, kubernetes, slurm)",
    ]


def test_a_run_in_progress_is_not_run_again(own_home: Path) -> None:
    run = muster.run(command=["sleep", "1000"])
    with pytest.raises(InvalidInput, match=r"sleep-1 is still (ACCEPTED|IN_PROGRESS)"):
        run.rerun()
    run.suspend()
    until(lambda: run.refresh().state == "SUSPENDED", "the run is suspended")
    with pytest.raises(InvalidInput, match="nodes"):
        run.rerun(nodes=0)
    again = run.rerun(args=["0"])
    assert again.rerun_of == run.name
    again.cancel()
    run.cancel()
    again.wait()
