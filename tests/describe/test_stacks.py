"""Equal stacks are grouped."""

from __future__ import annotations

from muster.describe.stacks import Frame, ThreadStack, group, lines

WAITS, WORKS = Frame("wait", "train.py", 7), Frame("step", "train.py", 9)
TOP = Frame("<module>", "train.py", 20)


def stack(rank: int, frame: Frame, thread: str = "MainThread", pid: int = 0) -> ThreadStack:
    return ThreadStack(rank, pid or 100 + rank, thread, thread == "MainThread", (frame, TOP))


def text(*stacks: ThreadStack) -> list[str]:
    return [line for one in group(stacks) for line in lines(one)]


def test_the_largest_group_comes_first_and_the_innermost_call_last() -> None:
    assert text(stack(0, WAITS), stack(1, WORKS), stack(2, WAITS), stack(3, WAITS)) == [
        "ranks 0,2-3:",
        "    <module> (train.py:20)",
        "    wait (train.py:7)",
        "rank 1:",
        "    <module> (train.py:20)",
        "    step (train.py:9)",
    ]


def test_other_threads_come_after_main_threads_and_are_named() -> None:
    threads = [stack(rank, WAITS, "feeder") for rank in range(3)]
    heads = [line for line in text(*threads, stack(1, WORKS)) if line.endswith(":")]
    assert heads == ["rank 1:", "ranks 0-2, thread feeder:"]


def test_several_processes_of_a_rank_are_counted() -> None:
    found = text(stack(0, WAITS, pid=1), stack(0, WAITS, pid=2), stack(1, WAITS, pid=3))
    assert found[0] == "ranks 0-1 (3 processes):"
