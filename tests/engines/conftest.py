"""The contract tests drive each engine of the registry through its session only.

A new engine is added to KINDS (`support.sessions`). The local engine is tested with namespaces,
without, and in a process with another session; `processes` is the example of
docs/internals/own-session.md; `servers` and `dialed` have nodes with servers, as engines whose
nodes are elsewhere, which are dialed and dial their supervisor, in some of the tests. Tests of a
capability are marked with its name.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from engines.contract_table import Recorder
from muster.engines.registry import engine_named
from muster.plan.arrange import arrange
from muster.plan.build import Identity, build_plan
from muster.plan.model import ResourcePlan, RunPlan
from muster.spec.kinds import classify_source
from muster.spec.overrides import overrides_from_mapping
from muster.spec.reader import spec_from_mapping
from muster.spec.resolve import resolve
from muster.storage.home import Home
from support.installed_engines import install_engine
from support.programs import Program
from support.sessions import KINDS, SIMULATED, DrivenSession, Session, engine_of, make_plan
from support.simulated_nodes import CAPABILITIES, SimulatedNodes


def pytest_configure(config: pytest.Config) -> None:
    """Have the results of the contract tests written to a page, if that is wanted."""
    wanted = os.environ.get("CONTRACT_PAGE") and not hasattr(config, "workerinput")
    if wanted:
        config.pluginmanager.register(Recorder())


#: Kinds whose nodes have the server that those of `servers` have, and are started by another
#: infrastructure. A test of them takes one to three seconds of processor time.
INFRASTRUCTURES = ("dialed", "hosts", "container", "slurm", "oci")
#: The local engine in other ways than `local-namespaces`.
VARIANTS = ("local-plain", "local-shared")


def chosen(case: str, kinds: Sequence[str] = INFRASTRUCTURES) -> str:
    """The one of some kinds that `make test` runs a case of a contract test with: another one for
    other cases, and the same one each time."""
    return kinds[crc32(case.encode()) % len(kinds)]


def _kind_of(item: pytest.Item) -> str:
    """The kind of engine that a contract test runs with; "" for other tests."""
    callspec = getattr(item, "callspec", None)
    return "" if callspec is None else str(callspec.params.get("kind", ""))


def _spare(items: list[pytest.Item], kinds: Sequence[str]) -> None:
    """Mark as slow what runs for each of some kinds, apart from the chosen one."""
    cases = defaultdict[str, dict[str, list[pytest.Item]]](lambda: defaultdict(list))
    for item in items:
        if isinstance(item, pytest.Function) and (kind := _kind_of(item)) in kinds:
            others = f"-{item.callspec.id}-".replace(f"-{kind}-", "-", 1).strip("-")
            cases[f"{item.path.name}::{item.originalname}[{others}]"][kind].append(item)
    for case, of_kinds in cases.items():
        if len(of_kinds) == len(kinds):
            for kind in of_kinds.keys() - {chosen(case, kinds)}:
                for item in of_kinds[kind]:
                    item.add_marker(pytest.mark.slow)


@pytest.hookimpl(tryfirst=True)  # before slow tests are deselected
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave most tests of infrastructures and variants to `make test-all`. Have reports say what
    tests are about, for the page."""
    _spare(items, INFRASTRUCTURES)
    _spare(items, VARIANTS)
    for item in items:
        if _kind_of(item) == "kubernetes":  # a double of a cluster takes its time
            item.add_marker(pytest.mark.slow)
        for name in ("subject", "capability"):
            for marker in item.iter_markers(name):
                about = [*marker.args, marker.kwargs.get("kind", "")]
                item.user_properties.append((name, about))


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


Prepare = Callable[[str], str]


@pytest.fixture
def prepare(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    own_home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Prepare:
    """Prepares an engine, unless it lacks what the test is about. Returns the name of its kind."""

    def one(name: str) -> str:
        install_engine(name, own_home, tmp_path, monkeypatch)
        capabilities = CAPABILITIES.get(name) or (
            engine_named(engine_of(name), Home(own_home)).capabilities
        )
        for marker in request.node.iter_markers("capability"):
            if not getattr(capabilities, marker.args[0]):
                pytest.skip(f"the engine lacks {marker.args[0]}")
        return name

    return one


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest, prepare: Prepare) -> str:
    return prepare(request.param)


@pytest.fixture
def session(kind: str, own_home: Path) -> Iterator[MakeSession]:
    made: list[Session] = []

    def make(
        command: str,
        nodes: int = 1,
        *,
        keep: bool = False,
        before: Callable[[Home, RunPlan], None] | None = None,
        **more: Any,
    ) -> Session:
        """before: called before the session is opened."""
        plan = make_plan(command, nodes, **more)
        (own_home / "runs" / plan.run_id).mkdir(parents=True)
        if before is not None:
            before(Home(own_home), plan)
        made.append(Session(kind, own_home, plan, keep=keep))
        return made[-1]

    yield make
    for one in made:
        one.abandon()


@pytest.fixture
def programs(kind: str, session: MakeSession) -> Callable[..., DrivenSession]:
    """Sessions whose nodes run a program of `support.programs`, also if they are simulated."""

    def make(program: Program, nodes: int = 1, *, keep: bool = False) -> DrivenSession:
        if kind in SIMULATED:
            return SimulatedNodes(kind, program, nodes, keep=keep)
        return session(program.script, nodes, keep=keep)

    return make
