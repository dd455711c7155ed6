"""Exit codes of commands that follow or show a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from muster.errors import EXIT_CANCELED, EXIT_OK, EXIT_PLATFORM, EXIT_RUN_FAILED
from muster.lifecycle.states import RunState

if TYPE_CHECKING:
    from muster.client.run import JobRun


def exit_code_of(run: JobRun) -> int:
    """The documented exit code for a run."""
    match RunState(run.state):
        case RunState.SUCCEEDED:
            return EXIT_OK
        case RunState.FAILED if run.broken:
            return EXIT_PLATFORM
        case RunState.FAILED:
            return EXIT_RUN_FAILED
        case RunState.CANCELED | RunState.CANCELING | RunState.SUSPENDED:
            return EXIT_CANCELED
        case _:
            return EXIT_PLATFORM
