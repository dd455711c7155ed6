"""Check before the start that nodes have the packages of the framework, and of notebooks."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from shutil import which

from muster.api.prepared import FrameworkCheck
from muster.errors import Problem
from muster.frameworks.packages import NOTEBOOK, PACKAGES, install_command, may_install, python_of
from muster.node.requirements import is_importable
from muster.plan.model import GroupPlan, RunPlan
from muster.submission import Submission
from muster.unix_account import process_options

#: Prints the modules that another Python has.
_PROBE = """
import sys
from importlib.util import find_spec
for name in sys.argv[1:]:
    found = find_spec(name)
    if found is not None and found.origin is not None:
        print(name)
"""
_PROBE_TIMEOUT = 20.0  # seconds
#: Programs that `muster.node.mpi_launchers` looks for, and what installs them.
_LAUNCHERS = ("mpiexec", "mpiexec.hydra", "mpirun")
_MPI = ("mpich", "openmpi", "impi-rt")


def check_framework(plan: RunPlan, submission: Submission) -> FrameworkCheck:
    """Look for the framework's packages, once for each Python that the nodes use.

    Nothing is imported.
    """
    needed, environment = PACKAGES.get(plan.framework), plan.environment
    if needed is None or (environment is not None and environment.conda is not None):
        return FrameworkCheck()
    if environment is not None and may_install(environment.requirements, needed.modules):
        return FrameworkCheck()
    problems, notes, pythons = dict[str, Problem](), dict[str, None](), dict[str, None]()
    known: dict[tuple[str, str | None], list[str] | None] = {}
    for group in plan.groups:
        if not (group.role.program or needed.services):
            continue
        file = plan.file_of(group)
        given = "" if needed.services else python_of(group.command, file)
        python, search_path = _resolve(given or "", group, submission), group.env.get("PYTHONPATH")
        key = (python, search_path)
        if key not in known:
            known[key] = _missing(python, search_path, needed.modules, submission)
        missing = known[key]
        name = python or submission.python
        if missing is None:
            notes[f"cannot tell whether {name} has {' and '.join(needed.modules)}"] = None
        elif not missing:
            pythons[name] = None
        else:
            text = f"{plan.framework} needs {' and '.join(missing)}, which {name} does not have"
            if given is None or group.image is not None:
                what = f"image {group.image}" if group.image else (group.command or (file,))[0]
                notes[f"{text}; {what} may have its own"] = None
            else:
                hint = install_command(needed, missing, python)
                if not python:
                    hint += f", or add {' and '.join(missing)} to the job's requirements"
                problems[text] = Problem("framework", text, hint)
    return FrameworkCheck(tuple(problems.values()), tuple(notes), tuple(pythons))


def check_other_needs(plan: RunPlan, submission: Submission) -> Iterator[Problem]:
    """What nodes lack besides the framework's packages: the launcher of MPI on the main node, and
    nbclient where a notebook is executed."""
    if plan.environment is not None and plan.environment.conda is not None:
        return
    if plan.framework == "mpi":
        yield from _check_launcher(plan, submission)
    installed = () if plan.environment is None else plan.environment.requirements
    groups = [group for group in plan.groups if plan.runs_notebook(group) and group.image is None]
    if may_install(installed, NOTEBOOK.modules):
        return
    for search_path in {group.env.get("PYTHONPATH"): None for group in groups}:
        if missing := _missing("", search_path, NOTEBOOK.modules, submission):
            names = " and ".join(missing)
            text = f"a notebook needs {names}, which {submission.python} does not have"
            hint = f"{install_command(NOTEBOOK, missing)}, or add {names} to the job's requirements"
            yield Problem("notebook", text, hint)
            return


def _check_launcher(plan: RunPlan, submission: Submission) -> Iterator[Problem]:
    group = next((group for group in plan.groups if group.role.program), None)
    requirements = () if plan.environment is None else plan.environment.requirements
    if group is None or group.image is not None or may_install(requirements, _MPI):
        return
    if not any(which(name, path=_search_path(group, submission)) for name in _LAUNCHERS):
        text = "mpi needs MPICH or Open MPI, and there is no mpiexec on PATH"
        yield Problem("framework", text, "pip install 'muster-jobs[mpi]'")


def _search_path(group: GroupPlan, submission: Submission) -> str:
    own, theirs = os.path.dirname(submission.python), submission.environ.get("PATH", os.defpath)
    return group.env.get("PATH") or os.pathsep.join([own, theirs])


def _resolve(given: str, group: GroupPlan, submission: Submission) -> str:
    """The path of a Python as the node finds it; "" for the nodes' own."""
    own, path = os.path.dirname(submission.python), _search_path(group, submission)
    if not given or os.path.dirname(given) == own:
        return ""
    found = given if "/" in given else which(given, path=path)
    return "" if found is None or os.path.dirname(found) == own else found


def _missing(
    python: str,
    search_path: str | None,
    modules: Mapping[str, tuple[str, ...]],
    submission: Submission,
) -> list[str] | None:
    """The packages that a Python lacks; None if it cannot be asked."""
    names = [name for several in modules.values() for name in several]
    # the packages of this process's Python are found without starting it
    if not python and search_path is None and submission.python == sys.executable:
        found = {name for name in names if is_importable(name)}
    else:
        env = {**submission.environ, **({} if search_path is None else {"PYTHONPATH": search_path})}
        asked = _ask(python or submission.python, names, env)
        if asked is None:
            return None
        found = asked
    return [package for package, several in modules.items() if not found.intersection(several)]


def _ask(python: str, names: list[str], env: Mapping[str, str]) -> set[str] | None:
    try:
        done = subprocess.run(
            [python, "-c", _PROBE, *names],
            env=dict(env),
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PROBE_TIMEOUT,
            check=True,
            **process_options(),
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return set(done.stdout.split())
