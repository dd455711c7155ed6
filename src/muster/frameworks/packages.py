"""The Python packages that frameworks need on nodes. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

_PYTHON = re.compile(r"python[0-9.]*")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class Packages(Struct, frozen=True):
    """What one framework needs."""

    #: Packages by the name that pip installs. Any of the modules of a package will do.
    modules: Mapping[str, tuple[str, ...]]
    #: The extra of muster-jobs that installs them; "" if there is none.
    extra: str = ""
    #: Whether services of the framework need them too, which run with the nodes' own Python.
    services: bool = False


_TORCH = {"torch": ("torch",)}
PACKAGES = {
    "pytorch": Packages(_TORCH, "pytorch"),
    "accelerate": Packages({**_TORCH, "accelerate": ("accelerate",)}, "accelerate"),
    "lightning": Packages({"lightning": ("lightning", "pytorch_lightning")}, "lightning"),
    "deepspeed": Packages({"deepspeed": ("deepspeed",)}, "deepspeed"),
    "tensorflow": Packages({"tensorflow": ("tensorflow",)}, "tensorflow"),
    "jax": Packages({"jax": ("jax",)}, "jax"),
    "dask": Packages({"dask": ("dask",), "distributed": ("distributed",)}, "dask", services=True),
    "ray": Packages({"ray": ("ray",)}, "serve", services=True),
    "horovod": Packages({"horovod": ("horovod",)}, services=True),
}


#: What nodes need to execute a notebook. Its kernel may be of another Python.
NOTEBOOK = Packages({"nbclient": ("nbclient",)}, "notebook")


def python_of(command: Sequence[str] | None, file: str | None) -> str | None:
    """The Python that runs a program: "" for the nodes' own, a name or path of another, or None if
    it is not known, as for a shell's.

    command: None to run the file. file: the entry point of the code.
    """
    if command is None:
        known = file is not None and file.lower().endswith((".py", ".ipynb", ".function"))
        return "" if known else None
    program = command[0] if command else ""
    return program if _PYTHON.fullmatch(program.rpartition("/")[2]) else None


def may_install(lines: Iterable[str], packages: Iterable[str]) -> bool:
    """Whether lines of a requirements file install one of the packages, as far as one can tell."""
    wanted = {name.lower() for name in packages}
    for line in lines:
        name = _NAME.match(line.strip())
        if name is None or "://" in line or name.group().lower().replace("_", "-") in wanted:
            return True
    return False


def install_command(packages: Packages, missing: Sequence[str], python: str = "") -> str:
    """The command that installs missing packages. python: "" for Muster's own."""
    names = " ".join(missing)
    if python:
        return f"{python} -m pip install {names}"
    extra = f"'muster-jobs[{packages.extra}]'" if packages.extra else ""
    return f"pip install {extra or names}"
