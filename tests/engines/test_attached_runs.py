"""Killed at every step, where nodes outlive their supervisor: the next one attaches to them, and
the run ends as if nothing had happened.

The run has two groups. A node of one is lost, and another one takes its place; then a node of the
other fails, and all restart in place. See also `control/test_crashes.py`, where nodes end with
their supervisor.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from muster.client.client import Client
from muster.client.run import JobRun
from muster.control import run_lock
from support.crashes import Places, check_log, recover, submit
from support.embedded import embedded
from support.faults import until
from support.runs import PROGRAM_OUTPUT
from support.sessions import DETACHED

KINDS = [kind for kind in DETACHED if kind]

#: Says numbered lines. Ranks 0 and 1 are workers, 2 is a helper. Each holds a lock of its rank.
PROGRAM = """
exec 9>> "$RECORDS/lock-$NODE_RANK"
flock --nonblock 9 || echo $NODE_RANK >> "$RECORDS/twice"
echo $NODE_RANK $MUSTER_RESTART >> "$RECORDS/starts"
echo $MUSTER_RESTART >> "$MUSTER_OUTPUTS/own"
trap 'echo $MUSTER_RESTART ends after $n; exit 143' TERM
n=0
say() { n=$((n+1)); echo $MUSTER_RESTART line $n; sleep 0.01; }
go_on() { while :; do say; done; }
for i in 1 2 3 4 5; do say; done
case $NODE_RANK-$MUSTER_RESTART in
    2-0) echo 0 ends after $n; kill -9 $PPID; sleep 1000;;
    2-1) touch "$RECORDS/replaced"; go_on;;
    1-0) until [ -e "$RECORDS/replaced" ] && [ -e "$RECORDS/listens" ]; do say; done
         echo 0 ends after $n; exit 3;;
    0-0) touch "$RECORDS/listens"; go_on;;
esac
echo $MUSTER_RESTART ends after $n
"""
#: Rank and incarnation. All nodes that restart together have the same number.
STARTS = ["0 0", "0 2", "1 0", "1 2", "2 0", "2 1", "2 2"]
MARK = f"of-an-attached-run-{os.urandom(8).hex()}"


class Case:
    """Runs of one job, each of which must end in the same way."""

    def __init__(self, client: Client, kind: str, folder: Path) -> None:
        self._client, self._folder = client, folder
        self.records = folder / "records"
        (folder / "program.sh").write_text(PROGRAM)
        self.job = folder / "job.yaml"
        self.job.write_text(
            f"engine: {kind}\nartifact: program.sh\n"
            "node_groups:\n  - {name: workers, nodes: 2}\n  - {name: helpers, retries: 1}\n"
            "failure: {max_restarts: 1}\n"
            f"env: {{MARK: {MARK}, RECORDS: {self.records}}}\n"
        )

    def prepare(self) -> None:
        """Forget the run before."""
        self.records.mkdir(exist_ok=True)
        for path in self.records.iterdir():
            path.unlink()

    def until_without_supervisor(self, run_id: str) -> None:
        """Wait until the supervisor of a run has died."""
        lock = embedded(self._client).home.run_dir(run_id).lock
        until(lambda: not run_lock.is_held(lock), "its supervisor has died")

    def finish(self, run_id: str, alive: Callable[[str], list[str]]) -> int:
        """Wait for a run, and check it. Returns how many supervisors it has lost."""
        run = self._client.run(run_id).wait(120)
        assert run.state == "SUCCEEDED", run.details
        assert alive(MARK) == []
        assert not (self.records / "twice").exists(), "no rank runs twice at the same time"
        assert sorted((self.records / "starts").read_text().splitlines()) == STARTS
        self._check_ends(run)
        self._check_output(run)
        check_log(self._client, run.id)
        return sum(entry.kind == "supervisor_replaced" for entry in run.events())

    def _check_ends(self, run: JobRun) -> None:
        assert [(node.rank, node.exit_code) for node in run.nodes] == [(0, 0), (1, 0), (2, 0)]
        found = [(entry.kind, entry.data) for entry in run.events()]
        failures = [_failure(data) for kind, data in found if kind == "failure"]
        assert failures == [(2, None, "node_lost"), (1, 3, "exit")]
        assert run.attempt == 1

    def _check_output(self, run: JobRun) -> None:
        folder = embedded(self._client).home.run_dir(run.id)
        for attempt, incarnations in ((0, (1, 1, 2)), (1, (1, 1, 1))):
            for rank, count in enumerate(incarnations):
                name = "helpers" if rank == 2 else "workers"
                path = folder.logs(attempt) / f"{name}-{rank}.out"
                _check_lines(path.read_text().splitlines(), count)
        for rank in range(3):
            own = folder.outputs / f"rank-{rank}" / "own"
            assert own.read_text().split() == [s.split()[1] for s in STARTS if s[0] == str(rank)]
        shown = [one.message for one in run.logs(streams=PROGRAM_OUTPUT)]
        assert len(shown) == 3 * 6, "each line is shown once"


def _failure(data: Any) -> tuple[int, int | None, str]:
    return data["rank"], data.get("exit_code"), data["reason"]


def _check_lines(lines: list[str], count: int) -> None:
    """The lines of so many incarnations, one after the other."""
    ends = [number for number, line in enumerate(lines) if "ends after" in line]
    assert len(ends) == count and ends[-1] == len(lines) - 1, lines
    for before, end in pairwise([-1, *ends]):
        *said, last = lines[before + 1 : end + 1]
        incarnation = last.split()[0]
        assert said == [f"{incarnation} line {n}" for n in range(1, len(said) + 1)]
        assert last.split()[-1] == str(len(said)), "it has said no more"


@pytest.fixture(params=KINDS)
def case(
    request: pytest.FixtureRequest,
    prepare: Callable[[str], str],
    client: Client,
    tmp_path: Path,
) -> Case:
    return Case(client, prepare(request.param), tmp_path)


@pytest.mark.slow
def test_a_run_survives_a_supervisor_killed_at_every_step(
    case: Case, alive: Callable[[str], list[str]]
) -> None:
    killed = survived = 0
    for point in range(1, 1000):
        case.prepare()
        print(f"point {point}")
        lost = case.finish(submit(point, case.job), alive)
        assert lost <= 1
        killed += lost
        survived += not lost
        if survived == 3:  # the number of steps varies with the events that arrive together
            break
    assert killed > 20, "the run has more steps"


def test_a_run_survives_a_supervisor_killed_before_it_records_the_end(
    case: Case, alive: Callable[[str], list[str]]
) -> None:
    """The servers of all nodes have left by then."""
    case.prepare()
    assert case.finish(submit(1, case.job, "end"), alive) == 1


#: How many points a run has at least, of each kind.
MOST = {"steps": 40, "rounds": 150}


@pytest.mark.parametrize("places", ["steps", pytest.param("rounds", marks=pytest.mark.slow)])
def test_a_run_survives_two_supervisors_killed_anywhere(
    case: Case, alive: Callable[[str], list[str]], rng: random.Random, places: Places
) -> None:
    """The second one, too, which may die while it attaches."""
    for _ in range(2):
        case.prepare()
        first, second = rng.randint(1, MOST[places]), rng.randint(1, MOST[places] // 2)
        print(f"points {first} and {second}")
        run = submit(first, case.job, places)
        case.until_without_supervisor(run)
        recover(second, run, places)
        case.finish(run, alive)
