"""What the nodes of a framework need installed, and the message if it is missing.

    python -m muster.node.requirements dask MODULE ARGUMENT...

runs a module of the framework like `python -m MODULE ARGUMENT...`, if it is installed.
"""

from __future__ import annotations

import runpy
import sys
from importlib.util import find_spec
from typing import Dict, List, NamedTuple, NoReturn, Tuple

#: The exit code of a shell for a command that does not exist.
NOT_FOUND = 127


class Requirement(NamedTuple):
    """What one framework needs."""

    #: For people.
    name: str
    #: Python modules, all of them needed.
    modules: Tuple[str, ...]
    #: The command that installs it.
    install: str


REQUIREMENTS: Dict[str, Requirement] = {
    "dask": Requirement("Dask", ("dask", "distributed"), "pip install 'dask[distributed]'"),
    "horovod": Requirement("Horovod", ("horovod",), "pip install horovod"),
    "mpi": Requirement("MPI", (), "pip install 'muster-jobs[mpi]'"),
    "ray": Requirement("Ray", ("ray",), "pip install 'ray[default]'"),
    "spark": Requirement("Spark", ("pyspark",), "pip install pyspark, or set SPARK_HOME"),
}


def missing_message(framework: str, part: str = "", reason: str = "") -> str:
    """The message that a framework is missing and how to install it.

    part: what is missing, if not all of it. reason: how that was found out.
    """
    requirement = REQUIREMENTS[framework]
    why = " (%s)" % reason if reason else ""
    name = part or requirement.name
    return "no %s for %s%s: %s" % (name, sys.executable, why, requirement.install)


def find_missing(framework: str) -> str:
    """The message about what nodes of this framework lack; "" if nothing is missing."""
    if framework == "mpi":
        from muster.node.mpi_launchers import NoMpi, find_launcher

        try:
            find_launcher("auto")
        except NoMpi as error:
            return str(error)
        return ""
    if framework == "spark":
        from muster.node.spark import find_problem

        return find_problem()
    requirement = REQUIREMENTS.get(framework)
    if requirement is None or all(find_spec(module) is not None for module in requirement.modules):
        return ""
    return missing_message(framework)


def is_importable(module: str) -> bool:
    """Whether this Python has a module, which is not imported."""
    try:
        found = find_spec(module)
    except (ImportError, ValueError):  # a module that was put into sys.modules by hand
        return module in sys.modules
    return found is not None and found.origin is not None  # a folder left behind has no origin


def require(framework: str) -> None:
    """End this process with the message if something is missing."""
    if message := find_missing(framework):
        exit_with(message)


def exit_with(message: str) -> NoReturn:
    """Print the message and exit like a shell for a command that does not exist."""
    sys.stderr.write("muster: %s\n" % message)
    sys.exit(NOT_FOUND)


def main(argv: List[str]) -> None:
    """Become `python -m MODULE ARGUMENT...`."""
    framework, module, *_ = argv
    require(framework)
    sys.argv = argv[1:]  # the module's name comes first, as usual
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1:])
