"""Exit codes of commands that follow or show a run."""

from __future__ import annotations

from muster.errors import EXIT_CANCELED, EXIT_OK, EXIT_PLATFORM, EXIT_RUN_FAILED
from muster.lifecycle.states import RunState


def exit_code_of(run_state: str) -> int:
    """The documented exit code for a run in this state."""
    match RunState(run_state):
        case RunState.SUCCEEDED:
            return EXIT_OK
        case RunState.FAILED:
            return EXIT_RUN_FAILED
        case RunState.CANCELED | RunState.CANCELING | RunState.SUSPENDED:
            return EXIT_CANCELED
        case _:
            return EXIT_PLATFORM
