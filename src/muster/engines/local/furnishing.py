"""Nodes that need things installed: what they are told of it, and how it comes to be there."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from muster.engines.base import RunContext
from muster.node.files import open_own
from muster.plan.environment import submitted
from muster.plan.model import EnvironmentPlan
from muster.storage.environments import Environment, enter, locate

#: What would have its Python look elsewhere.
_MISLEADING = ("PYTHONHOME", "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV")


class Furnishing(Struct, frozen=True):
    """The environment of a run. context: the run, as its nodes are to see it."""

    plan: EnvironmentPlan
    environment: Environment
    context: RunContext
    given: dict[str, str]

    def ready(self, output: str) -> Callable[[], None]:
        """What a node does before anything else. output: where it tells how that goes on."""
        return partial(self._enter, output)

    def _enter(self, output: str) -> None:
        with os.fdopen(open_own(output, os.O_WRONLY | os.O_APPEND, 0o644), "a") as file:
            say = partial(print, file=file, flush=True)
            enter(self.environment, self.plan, self.given, say)


def furnish(context: RunContext) -> Furnishing | None:
    """None if the job needs nothing installed."""
    plan = context.plan.environment
    if plan is None:
        return None
    environment = locate(context.home, plan)
    given = submitted(context.plan, context.environ)
    environ = {name: value for name, value in given.items() if name not in _MISLEADING}
    kind = "VIRTUAL_ENV" if plan.conda is None else "CONDA_PREFIX"
    environ[kind] = str(environment.prefix)
    changed = replace(context, environ=environ, python=environment.python)
    return Furnishing(plan, environment, changed, given)
