"""Frameworks by name: built-in ones, and plug-ins of other packages.

A package adds a framework with an entry point in the group `muster.frameworks`:

    [project.entry-points."muster.frameworks"]
    mine = "my_package.framework:Mine"
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct

from muster.errors import InvalidInput, Problem
from muster.frameworks.base import Framework
from muster.spec.decode import decode
from muster.spec.wording import short, suggestion

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

ENTRY_POINTS = "muster.frameworks"
_BUILT_IN = {
    "generic": "muster.frameworks.generic:Generic",
    "pytorch": "muster.frameworks.pytorch:PyTorch",
    "accelerate": "muster.frameworks.accelerate:Accelerate",
    "lightning": "muster.frameworks.lightning:Lightning",
    "deepspeed": "muster.frameworks.deepspeed:DeepSpeed",
    "dask": "muster.frameworks.dask:Dask",
    "mpi": "muster.frameworks.mpi:Mpi",
    "tensorflow": "muster.frameworks.tensorflow:TensorFlow",
    "jax": "muster.frameworks.jax:Jax",
    "horovod": "muster.frameworks.horovod:Horovod",
    "ray": "muster.frameworks.ray:Ray",
    "spark": "muster.frameworks.spark:Spark",
}

#: Used by Muster itself and not listed. Stored checks of older versions are called "survey".
_HIDDEN = {
    "preflight": "muster.frameworks.preflight:Preflight",
    "survey": "muster.frameworks.preflight:Preflight",
}


def get_framework(name: str) -> Framework:
    """The framework with this name. Raises InvalidInput (path `framework`) if there is none."""
    place = _BUILT_IN.get(name) or _HIDDEN.get(name)
    if place is not None:
        module, _, attribute = place.partition(":")
        return cast(Framework, getattr(import_module(module), attribute)())
    for entry in _entry_points():
        if entry.name == name:
            return cast(Framework, entry.load()())
    hint = suggestion(name, framework_names())
    raise InvalidInput(Problem("framework", f"no framework named {short(name)}", hint))


def read_options(framework: Framework, data: Mapping[str, Any]) -> Struct:
    """`framework_options` as the framework's own `Options`. Raises InvalidInput."""
    problems: list[Problem] = []
    options = decode(framework.Options, data, problems, "framework_options")
    if options is None:
        raise InvalidInput(*problems)
    return options


def framework_names() -> list[str]:
    """All names of frameworks, built-in ones first."""
    return [*_BUILT_IN, *sorted({entry.name for entry in _entry_points()} - set(_BUILT_IN))]


def _entry_points() -> EntryPoints:
    from importlib.metadata import entry_points  # takes 15 ms: only if the name is not built in

    return entry_points(group=ENTRY_POINTS)
