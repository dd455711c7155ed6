"""The engines of this machine's user: those that are installed, and those that the user adds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import structs
from msgspec.structs import asdict

from muster.describe.words import named
from muster.engines import profiles, registry
from muster.errors import EngineError, InvalidInput, Problem
from muster.spec.toml_file import parse_toml
from muster.spec.values import ADOPTED_TAG
from muster.storage.home import Home, default_home

if TYPE_CHECKING:
    from muster.api.answers import EngineInfo
    from muster.engines.findings import Finding
    from muster.service.context import Context
    from muster.spec.models import JobSpec
    from muster.store.base import Store


#: Flags that may be repeated, by the settings that they fill.
_FLAGS = {"hosts": "host", "mounts": "mount", "image_pull_secrets": "image-pull-secret"}
#: Runs that are named in a refusal.
_MOST_RUNS = 5


def engines(home: Home) -> list[EngineInfo]:
    """See `MusterAPI.engines`."""
    from muster.api.answers import EngineInfo
    from muster.engines.installed import installed_engines

    return [
        EngineInfo(
            *(one.name, one.origin, one.unusable),
            None if one.engine is None else asdict(one.engine.capabilities),
        )
        for one in installed_engines(home)
    ]


def check(name: str, home: Home) -> list[Finding]:
    """What an engine finds. Raises InvalidInput."""
    return registry.found_by(registry.engine_named(name, home))


def read_workload(name: str, reference: str, namespace: str | None, context: Context) -> JobSpec:
    """See `MusterAPI.read_workload`."""
    from muster.engines.capabilities import require
    from muster.spec.formats.jobset.as_is import job_of

    engine = registry.engine_named(name, context.home)
    require(engine, "workloads")
    if reason := registry.unavailable(engine):
        raise EngineError(f"engine {name} cannot be used here: {reason}")
    found = engine.read_workload(reference, namespace)
    spec = job_of(found, str(found["metadata"]["uid"]))
    adopted = f"jobset/{found['metadata']['name']}"
    assert spec.workload is not None
    if (run := _adopted_by(context.store, spec.workload.uid)) is not None:
        text = f"{adopted} is adopted by {run} already; only one run can watch a JobSet"
        raise InvalidInput(Problem("NAME", text, f"`muster status {run}` shows it"))
    return structs.replace(spec, engine=name, tags={**spec.tags, ADOPTED_TAG: adopted})


def _adopted_by(store: Store, uid: str | None) -> str | None:
    """The name of the run in progress that has adopted a workload. None if there is none."""
    for run in store.runs.live():
        if ADOPTED_TAG in run.tags:
            workload = store.runs.get(run.id).spec.get("workload") or {}
            if workload.get("uid") == uid:
                return run.name
    return None


def add(name: str, kind: str, settings: Mapping[str, Any], *, replace: bool) -> Path:
    """Add an engine of a kind. Returns the file of its profile. Raises InvalidInput, whose problems
    have flags as paths, OSError.

    settings: as in the profile. replace: whether one that was added before may be replaced.
    """
    home = default_home()
    home.prepare()
    added = profiles.profile_names(home)
    if (
        name not in added
        and name in (*registry.engine_names(home), *registry.KINDS)
        and name != kind
    ):
        problem = Problem("--name", f"there is an engine {name} already", "choose another name")
        raise InvalidInput(problem)
    file = profiles.file_of(home, name)
    if name in added and not replace:
        hint = f"--replace replaces it, --name adds another one; its file can be edited: {file}"
        raise InvalidInput(Problem("--name", f"engine {name} exists already", hint))
    text = profiles.profile_text(name, kind, settings)
    try:
        registry.kind_named(kind)(profiles.profile_of(name, parse_toml(text, file)), home)
    except InvalidInput as error:
        raise InvalidInput(*map(_of_flag, error.problems)) from None
    profiles.write_profile(file, text)
    return file


def _of_flag(problem: Problem) -> Problem:
    """A problem with a setting, as one with the flag that gave it."""
    if not problem.path:
        return problem
    key = problem.path.partition("[")[0]
    flag = _FLAGS.get(key) or key.replace("_", "-")
    return problem._replace(path=f"--{flag}")


def rights(name: str, **grantees: tuple[str, ...]) -> str:
    """What an administrator gives to the infrastructure's own tools so that some may use an engine.
    grantees: the fields of `Grantees`. Raises InvalidInput, also if nobody has to grant anything.
    """
    from muster.engines.grantees import Grantees  # one command needs it

    engine = registry.engine_named(name, default_home())
    if why := registry.unavailable(engine):
        raise InvalidInput(Problem("", f"engine {name} cannot be used here: {why}"))
    found = engine.rights(Grantees(**grantees))
    if not found:
        raise InvalidInput(Problem("", f"engine {name} needs no rights that somebody grants"))
    return found


def remove(name: str, *, force: bool = False) -> Path:
    """Remove an engine that was added. Returns the file that its profile was. force: also if runs
    use it. Raises InvalidInput, OSError, StoreError."""
    home = default_home()
    file = profiles.file_of(home, name)
    if name not in profiles.profile_names(home):
        known = ", ".join(profiles.profile_names(home)) or "none"
        raise InvalidInput(Problem("", f"no engine {name} was added", f"added: {known}"))
    if not force and (runs := _runs_on(name, home)):
        verb = "use" if len(runs) > 1 else "uses"
        forced = "--force removes the engine anyway, and then no command can reach their nodes"
        hint = f"end these runs first; {forced}"
        text = f"{named(sorted(runs), _MOST_RUNS)} {verb} engine {name}"
        raise InvalidInput(Problem("", text, hint))
    file.unlink()
    return file


def _runs_on(name: str, home: Home) -> list[str]:
    """The names of runs that are not at rest, and whose engine this is."""
    from muster.control.open_store import open_store

    if not home.records.exists():
        return []
    store = open_store(home)
    try:
        return [run.name for run in store.runs.live() if run.engine == name]
    finally:
        store.close()
