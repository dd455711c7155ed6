"""Descriptions of failures."""

from __future__ import annotations

import pytest

from muster.describe.failure import cause_first, cause_lines, one_line
from muster.lifecycle.failure_details import cause_of_restart, describe, reason_of
from muster.lifecycle.policy import GroupPolicy
from muster.lifecycle.status import Failure, Reason

WHO = "node-3 (group workers, rank 3)"


@pytest.mark.parametrize(
    ("reason", "code", "signal", "expected"),
    [
        (Reason.EXIT, 3, 0, f"{WHO} failed with exit code 3"),
        (Reason.EXIT, 137, 9, f"{WHO} failed with exit code 137 (signal 9, SIGKILL)"),
        (Reason.EXIT, 168, 40, f"{WHO} failed with exit code 168 (signal 40)"),
        (Reason.OUT_OF_MEMORY, 137, 9, f"{WHO} ran out of memory and was ended, exit code 137"),
        (Reason.OUT_OF_MEMORY, None, 0, f"{WHO} ran out of memory and was ended"),
        (Reason.NOT_STARTED, None, 0, f"{WHO} could not be started"),
        (Reason.NODE_LOST, None, 0, f"{WHO} was lost"),
        (Reason.STARTUP_TIMEOUT, None, 0, f"{WHO} did not become ready"),
        (Reason.DEADLINE, None, 0, f"{WHO} took too long"),
        (Reason.HANG, None, 0, f"{WHO} hung and was ended"),
        (Reason.UNHEALTHY, None, 0, f"{WHO} did not answer its liveness probe and was ended"),
        (Reason.PREFLIGHT, None, 0, f"{WHO} did not pass its preflight checks"),
        (Reason.OUTPUT_LOST, 1, 0, f"the files that {WHO} wrote could not be copied back"),
    ],
)
@pytest.mark.parametrize("message", ["", "first\nlast"])
def test_describe(
    reason: Reason, code: int | None, signal: int, expected: str, message: str
) -> None:
    failure = Failure(3, "workers", reason, code, signal, message, 0.0)
    assert describe(failure) == expected + (f":\n{message}" if message else "")


@pytest.mark.parametrize(
    ("nodes", "where"),
    [(1, "replica 6 (group workers)"), (2, "replica 3, node 0 (group workers)")],
)
def test_nodes_of_an_array_are_called_by_their_replica(nodes: int, where: str) -> None:
    group = GroupPolicy("workers", 0, 9, nodes, 9, parallelism=2)
    failure = Failure(6, "workers", Reason.EXIT, 7, 0, "no data", 0.0)
    assert describe(failure, group) == f"{where} failed with exit code 7:\nno data"
    inside = where.replace(" (", ", ").removesuffix(")")
    assert cause_first(describe(failure, group)) == f"no data ({inside}: exit code 7)"


@pytest.mark.parametrize(
    ("reason", "code", "expected"),
    [
        (Reason.NODE_LOST, None, f"{WHO} was lost: JobSet a was deleted"),
        (
            Reason.OUT_OF_MEMORY,
            None,
            f"{WHO} ran out of memory and was ended: JobSet a was deleted",
        ),
        # what the program has written is in its log
        (Reason.OUT_OF_MEMORY, 137, f"{WHO} ran out of memory and was ended, exit code 137"),
        (Reason.HANG, None, f"{WHO} hung and was ended"),
        (Reason.EXIT, 3, f"{WHO} failed with exit code 3"),
    ],
)
def test_a_restart_is_explained_by_what_the_engine_says(
    reason: Reason, code: int | None, expected: str
) -> None:
    failure = Failure(3, "workers", reason, code, 0, "JobSet a was deleted", 0.0)
    assert cause_of_restart(failure, GroupPolicy("workers", 0, 4, 4, 1)) == expected


def test_the_last_lines_of_what_others_have_ended_do_not_say_why() -> None:
    why = "pod a on gpu-7 ran out of memory: its limit is 8Gi"
    assert reason_of(f"{why}\nlast lines of its log:\nstep 1200 loss 1.87") == why


TRACEBACK = 'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\n    f()\n'
CHAINED = f"{TRACEBACK}KeyError: a\n\nDuring handling of the above exception, another exception"


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("", "it failed"),
        (" ", "it failed"),
        ("no data", "it failed: no data"),
        ("looking\nno data", "it failed: no data"),
        (f"{TRACEBACK}ValueError: bad\nmore of it", "it failed: ValueError: bad"),
        (f"{CHAINED} occurred:\n\n{TRACEBACK}OSError: b", "it failed: OSError: b"),
        (f"rank 1 failed:\n{TRACEBACK}OSError: b", "it failed: rank 1 failed: OSError: b"),
        (f"ray ended (1)\n{TRACEBACK}OSError: b", "it failed: ray ended (1): OSError: b"),
    ],
)
def test_one_line_names_the_error(message: str, expected: str) -> None:
    assert one_line(f"it failed:\n{message}" if message else "it failed") == expected
    assert one_line("canceled\nby ada") == "canceled"


@pytest.mark.parametrize(
    ("headline", "inside"),
    [
        (f"{WHO} failed with exit code 3", "node-3, group workers, rank 3: exit code 3"),
        (
            f"{WHO} failed with exit code 137 (signal 9, SIGKILL)",
            "node-3, group workers, rank 3: exit code 137, signal 9, SIGKILL",
        ),
        (f"{WHO} was lost", "node-3, group workers, rank 3: was lost"),
        ("it failed", "it failed"),
    ],
)
def test_a_headline_after_the_error_has_no_parentheses_of_its_own(
    headline: str, inside: str
) -> None:
    assert cause_first(f"{headline}:\nno data") == f"no data ({inside})"
    assert cause_first(headline) == headline


def test_a_refusal_of_all_nodes_names_none() -> None:
    why = "the cluster does not accept the credentials (401 Unauthorized): log in again"
    note = "another start would fail until this is corrected"
    details = f"{WHO} could not be started:\n{why}\n{note}"
    assert one_line(details) == cause_first(details) == why
    assert cause_lines(details, 5) == [why, note]
    left = f"{details}\nJobSet a is left in the cluster: no right; `kubectl` deletes it"
    assert one_line(left) == why
    assert one_line(details.removesuffix(f"\n{note}")) == f"{WHO} could not be started: {why}"


@pytest.mark.parametrize(
    "note",
    [
        "3 of 3 replicas of group workers failed: 0-2",
        "1,200 of 3,000 replicas of group w failed: 0-9 and 1,190 more; group w allows 9",
        "all 3 restarts are used up (failure.max_restarts)",
        "the only restart is used up (failure.max_restarts)",
        "all 20 retries of group workers are used up",
        "the only retry of group workers is used up (total_retries)",
        "group workers allows no retry (total_retries)",
        "JobSet train has failed: no restarts left (first failed job: w-0) (ReachedMaxRestarts)",
        "JobSet train was deleted\nJobSet train may be left in the cluster: no right; `kubectl`",
        "JobSet a, JobSet b are left in the cluster: no right; `kubectl` deletes them",
        "rule oom\njob muster-a is left in OCI: no right; `muster rm a` tries it again",
        "the node server of node 0 was left on gpu1, which cannot be reached",
        "another start would fail until this is corrected",
        "failure.max_restarts allows no restart",
        "max_restarts of group workers allows no restart",
        "rule oom",
    ],
)
def test_the_note_of_a_failure_is_not_what_the_program_wrote(note: str) -> None:
    details = f"{WHO} failed with exit code 2:\nusage: a.py [-h]\na.py: error: no --lr\n{note}"
    assert one_line(details) == f"{WHO} failed with exit code 2: a.py: error: no --lr"
    assert cause_first(f"{WHO} failed with exit code 2\n{note}") == f"{WHO} failed with exit code 2"
