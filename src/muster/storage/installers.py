"""Install environments with uv, with venv and pip if uv is missing, or with conda."""

from __future__ import annotations

import os
import shutil
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from muster.errors import EngineError, Problem
from muster.node.installation import reason_in, run_installer, show_parent
from muster.plan.model import EnvironmentPlan
from muster.spec.wording import alternatives

CONDAS = ("micromamba", "mamba", "conda")
#: pip's settings -> uv's: uv does not read those of pip.
_SETTINGS = {
    "PIP_INDEX_URL": "UV_DEFAULT_INDEX",
    "PIP_EXTRA_INDEX_URL": "UV_INDEX",
    "PIP_FIND_LINKS": "UV_FIND_LINKS",
    "PIP_NO_INDEX": "UV_NO_INDEX",
}

Log = Callable[[str], None]


def check_tools(plan: EnvironmentPlan, environ: Mapping[str, str]) -> list[Problem]:
    """The missing tools of this machine, to be reported before anything starts."""
    if plan.conda is None or _conda(environ) is not None:
        return []
    text = f"needs {alternatives(CONDAS)}, and none of them is on PATH"
    hint = "install micromamba (a single file), or use requirements instead"
    return [Problem("conda", text, hint)]


def install(
    prefix: Path, plan: EnvironmentPlan, environ: Mapping[str, str], base: str, log: Log
) -> None:
    """Install the environment at `prefix`. base: the Python that it extends.

    Raises EngineError with the installer's last lines.
    """
    env = {name: value for name, value in environ.items() if name not in _MISLEADING}
    env |= {"PIP_ROOT_USER_ACTION": "ignore", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    python = prefix / "bin" / "python"
    if plan.conda is not None:
        _conda_install(prefix, plan.conda, env, log)
        if not python.exists():
            text = "the conda environment has no Python: add python to its dependencies"
            raise EngineError(text)
        if plan.requirements:
            _pip(prefix, [str(python), "-m", "pip", "install"], plan, env, log)
        return
    uv = shutil.which("uv", path=env.get("PATH")) if env.get("MUSTER_INSTALLER") != "pip" else None
    count = len(plan.requirements)
    what = "1 requirement" if count == 1 else f"{count} requirements"
    log(f"muster: installing {what} with {'uv' if uv else 'pip'}, once for all nodes")
    if uv is not None:
        env |= {
            theirs: env[ours] for ours, theirs in _SETTINGS.items() if _lacks(env, ours, theirs)
        }
        words = [uv, "venv", "-q", "--system-site-packages", "--python", base]
        _run([*words, str(prefix)], env, log)
        _show_parent(prefix, base)
        _pip(prefix, [uv, "pip", "install", "--python", str(python)], plan, env, log)
        return
    words = [base, "-m", "venv", "--system-site-packages", "--without-pip"]
    _run([*words, str(prefix)], env, log)
    _show_parent(prefix, base)
    pip = [base, "-m", "pip", "--python", str(python), "install", "--progress-bar=off"]
    _pip(prefix, pip, plan, env, log)


#: Variables of the user that would direct an installer to another environment.
_MISLEADING = ("VIRTUAL_ENV", "PYTHONHOME", "CONDA_PREFIX", "PIP_TARGET", "PIP_PREFIX", "PIP_USER")


def _lacks(env: Mapping[str, str], ours: str, theirs: str) -> bool:
    return ours in env and theirs not in env


def parent_packages(base: str) -> list[str]:
    """The package folders of a Python's virtual environment; empty outside of one.

    Derived from the path of Python, because a supervisor may run without the site module.
    """
    prefix = Path(base).parent.parent
    if not (prefix / "pyvenv.cfg").is_file():
        return []
    places = {"base": str(prefix), "platbase": str(prefix)}
    names = ("purelib", "platlib")
    return sorted({sysconfig.get_path(name, "posix_prefix", places) for name in names})


def _show_parent(prefix: Path, base: str) -> None:
    """Add the packages of the base's virtual environment, if it is in one."""
    if paths := parent_packages(base):
        show_parent(str(prefix), paths)


def _pip(
    prefix: Path, words: Sequence[str], plan: EnvironmentPlan, env: Mapping[str, str], log: Log
) -> None:
    lines = prefix.parent / "requirements.txt"
    descriptor = os.open(lines, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.writelines(f"{line}\n" for line in plan.requirements)
    try:
        _run([*words, "-r", str(lines)], env, log)
    finally:
        lines.unlink()  # it may contain passwords


def _conda(environ: Mapping[str, str]) -> str | None:
    found = (shutil.which(name, path=environ.get("PATH")) for name in CONDAS)
    return next((path for path in found if path), None)


def _conda_install(prefix: Path, text: str, env: Mapping[str, str], log: Log) -> None:
    program = _conda(env)
    if program is None:
        raise EngineError(str(check_tools(EnvironmentPlan(conda=text), env)[0]))
    log(f"muster: creating the conda environment with {Path(program).name}, once for all nodes")
    file = prefix.parent / "environment.yaml"
    file.write_text(text)
    _run(conda_command(program, prefix, file), env, log)


def conda_command(program: str, prefix: Path, file: Path) -> list[str]:
    """The command that creates an environment from a file."""
    if Path(program).name == "micromamba":
        return [program, "create", "-y", "-q", "-p", str(prefix), "-f", str(file)]
    return [program, "env", "create", "-q", "-p", str(prefix), "-f", str(file)]


def _run(words: Sequence[str], env: Mapping[str, str], log: Log) -> None:
    """Run an installer and pass its output on by line. Raises EngineError."""
    code, last = run_installer(words, env, log)
    if code:
        name = "uv" if Path(words[0]).name == "uv" else "pip"
        name = Path(words[0]).name if "env" in words or "create" in words else name
        reason = f"the job's requirements cannot be installed: {reason_in(last)}"
        if name == "uv":
            reason += " (uv does not read pip.conf; set MUSTER_INSTALLER=pip to use pip)"
        raise EngineError(reason)
