"""What a framework's nodes need installed, and the one sentence that says so where it is missing.

    python -m muster.node.needs dask MODULE words

runs a module of the framework's own as `python -m MODULE words` would, once that is there.
"""

from __future__ import annotations

import runpy
import sys
from importlib.util import find_spec
from typing import Dict, List, NamedTuple, NoReturn, Tuple

#: What a shell answers for a command that is not there.
NOT_FOUND = 127


class Need(NamedTuple):
    """name: for people. modules: of Python, all of them. install: what brings it."""

    name: str
    modules: Tuple[str, ...]
    install: str


NEEDS: Dict[str, Need] = {
    "dask": Need("Dask", ("dask", "distributed"), "pip install 'dask[distributed]'"),
    "horovod": Need("Horovod", ("horovod",), "pip install horovod"),
    "mpi": Need("MPI", (), "pip install mpich mpi4py"),
    "ray": Need("Ray", ("ray",), "pip install 'ray[default]'"),
    "spark": Need("Spark", ("pyspark",), "pip install pyspark, or set SPARK_HOME"),
}


def sentence(framework: str, name: str = "", why: str = "") -> str:
    """That it is not here, and what to do. name: what of it, if not all; why: how that was seen."""
    need = NEEDS[framework]
    seen = " (%s)" % why if why else ""
    return "no %s for %s%s: %s" % (name or need.name, sys.executable, seen, need.install)


def missing(framework: str) -> str:
    """The sentence, or "" if all is there that nodes of this framework need."""
    if framework == "mpi":
        from muster.node.mpi_launchers import NoMpi, find_launcher

        try:
            find_launcher("auto")
        except NoMpi as error:
            return str(error)
        return ""
    if framework == "spark":
        from muster.node.spark import trouble

        return trouble()
    need = NEEDS.get(framework)
    here = need is None or all(find_spec(module) is not None for module in need.modules)
    return "" if here else sentence(framework)


def require(framework: str) -> None:
    """End this process with the sentence if something is missing."""
    if why := missing(framework):
        refuse(why)


def refuse(why: str) -> NoReturn:
    """Say why and end as for a command that is not there."""
    sys.stderr.write("muster: %s\n" % why)
    sys.exit(NOT_FOUND)


def main(words: List[str]) -> None:
    """Become `python -m MODULE words`."""
    framework, module, *_ = words
    require(framework)
    sys.argv = words[1:]  # its own name comes first, as anywhere
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1:])
