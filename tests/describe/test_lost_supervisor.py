"""What lets a run survive a shutdown."""

from __future__ import annotations

import pytest

from muster.describe.lost_supervisor import hint_for

TERMINATED = "the run's supervisor received SIGTERM, stopped all nodes and exited"


@pytest.mark.parametrize(
    ("message", "max_restarts", "hinted"),
    [
        (TERMINATED, 0, True),
        (TERMINATED, 1, False),
        ("the run's supervisor was killed, and every process of the run with it", 0, False),
        (f"print: {TERMINATED}", 0, False),
        ("", 0, False),
    ],
)
def test_restarts_are_offered_to_a_run_without_any(
    message: str, max_restarts: int, hinted: bool
) -> None:
    assert ("--max-restarts" in hint_for(message, max_restarts)) is hinted
