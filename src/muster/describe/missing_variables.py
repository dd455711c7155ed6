"""Hints for programs that fail because the run's framework does not set the variables they need."""

from __future__ import annotations

import re

from muster.spec.models import DEFAULT_FRAMEWORK

#: What torch.distributed says if it is to be initialised from the environment.
_PYTORCH = (
    r"environment variable (MASTER_ADDR|MASTER_PORT|RANK|WORLD_SIZE) expected, but not set"
    r"|KeyError: '(MASTER_ADDR|MASTER_PORT|LOCAL_RANK|WORLD_SIZE)'"
)


def hint_for(framework: str, message: str) -> str:
    """What to do about a failure whose message names a missing variable of PyTorch, in a run
    without a framework; else ""."""
    found = re.search(_PYTORCH, message) if framework == DEFAULT_FRAMEWORK else None
    if found is None:
        return ""
    return f"`--framework pytorch` sets {found[1] or found[2]}"
