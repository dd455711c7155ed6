"""The contract tests drive each engine of the registry through its session only.

A new engine is added to KINDS. The local engine is tested with namespaces and without; `processes`
is the example of docs/internals/engines.md. Tests of a capability are marked with its name.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from muster.engines.registry import engine_named
from muster.plan.arrange import arrange
from muster.plan.build import Identity, build_plan
from muster.plan.model import ResourcePlan, RunPlan
from muster.spec.overrides import overrides_from_mapping
from muster.spec.reader import spec_from_mapping
from muster.spec.resolve import resolve
from muster.storage.mount_sources import classify_source
from support.plugins import install_processes
from support.sessions import Session, make_plan

#: An engine's name, and how it is prepared.
KINDS = ["local-namespaces", "local-plain", "processes"]

MakeSession = Callable[..., Session]
PlanOf = Callable[..., RunPlan]


@pytest.fixture
def plan_of() -> PlanOf:
    """Make a plan from the fields of a spec; the default command is `true`."""

    def make(**spec: Any) -> RunPlan:
        data = {"name": "demo", "command": ["true"], **spec}
        return build_plan(
            arrange(resolve(spec_from_mapping(data), overrides_from_mapping({})).spec),
            Identity("r1", "demo-1", "j1", "demo"),
            artifact=None,
            addresses=lambda network, nodes: [f"127.5.0.{i + 1}" for i in range(nodes)],
            source_kind=classify_source,
            shape_of=lambda name: ResourcePlan(shape=name),
        )

    return make


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name: str = request.param
    if name == "processes":
        install_processes(tmp_path / "site")
        monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"), prepend=os.pathsep)
        monkeypatch.syspath_prepend(str(tmp_path / "site"))
    capabilities = engine_named(name.partition("-")[0]).capabilities
    for marker in request.node.iter_markers("capability"):
        if not getattr(capabilities, marker.args[0]):
            pytest.skip(f"the engine lacks {marker.args[0]}")
    return name


@pytest.fixture
def session(kind: str, own_home: Path) -> Iterator[MakeSession]:
    made: list[Session] = []

    def make(command: str, nodes: int = 1, *, keep: bool = False, **more: Any) -> Session:
        plan = make_plan(command, nodes, **more)
        (own_home / "runs" / plan.run_id).mkdir(parents=True)
        made.append(Session(kind, own_home, plan, keep=keep))
        return made[-1]

    yield make
    for one in made:
        if one.process.poll() is None:
            one.process.kill()
            os.kill(one.pid, signal.SIGKILL)
            one.process.wait(30)
        for pipe in (one.process.stdin, one.process.stdout):
            if pipe is not None:
                pipe.close()
