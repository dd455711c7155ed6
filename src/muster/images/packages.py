"""What each framework needs inside an image: packages and ports.

The versions are those that the frameworks are tested with. Versions in the user's requirements
file take precedence (see `requirements.merge_requirements`).
"""

from __future__ import annotations

import re

from msgspec import Struct

from muster.errors import InvalidInput
from muster.frameworks.registry import get_framework


class Packages(Struct, frozen=True, kw_only=True):
    """What is installed for a framework."""

    pip: tuple[str, ...] = ()
    """Requirements."""
    debian: tuple[str, ...] = ()
    """Debian packages, installed first."""
    steps: tuple[str, ...] = ()
    """Shell commands after pip; each is a layer."""
    same: tuple[tuple[str, str], ...] = ()
    """(other name, our name) of packages that the user may list under another name, such as
    conda's."""


_TORCH = "torch==2.13.0"
_TORCH_NAMES = (("pytorch", "torch"), ("pytorch-cpu", "torch"), ("pytorch-gpu", "torch"))
# horovod 0.28.1 sets C++14 in its CMake files, but torch's headers need C++17: a wrapper of the
# compiler raises the standard
_CXX = "/usr/local/bin/c++-17"
_WRAPPER = (
    "#!/bin/sh",
    'for word in "$@"; do',
    '  shift; case "$word" in -std=*14) word=-std=gnu++17;; esac; set -- "$@" "$word"',
    "done",
    'exec g++ "$@"',
)
_HOROVOD = (
    f"printf '%s\\n' {' '.join(repr(line) for line in _WRAPPER)} > {_CXX} && chmod 755 {_CXX}",
    f"CXX={_CXX} MAKEFLAGS=-j$(nproc) CMAKE_POLICY_VERSION_MINIMUM=3.5 "
    "HOROVOD_WITH_PYTORCH=1 HOROVOD_WITH_GLOO=1 HOROVOD_WITHOUT_MPI=1 "
    "HOROVOD_WITHOUT_TENSORFLOW=1 HOROVOD_WITHOUT_MXNET=1 HOROVOD_CPU_OPERATIONS=GLOO "
    "{pip} --no-build-isolation --no-binary horovod 'horovod==0.28.1'",
)

_PACKAGES = {
    "generic": Packages(),
    "pytorch": Packages(pip=(_TORCH, "numpy"), same=_TORCH_NAMES),
    "accelerate": Packages(pip=(_TORCH, "numpy", "accelerate==1.15.0"), same=_TORCH_NAMES),
    "lightning": Packages(pip=(_TORCH, "numpy", "lightning==2.6.6"), same=_TORCH_NAMES),
    "deepspeed": Packages(
        # compiles its extensions at run time
        pip=(_TORCH, "numpy", "ninja", "deepspeed==0.19.8"),
        debian=("g++",),
        same=_TORCH_NAMES,
    ),
    "dask": Packages(pip=("dask[distributed]==2026.8.0", "bokeh")),
    "ray": Packages(pip=("ray[default]==2.60.0",), same=(("ray-default", "ray"),)),
    "tensorflow": Packages(
        pip=("tensorflow-cpu==2.21.0",), same=(("tensorflow", "tensorflow-cpu"),)
    ),
    "horovod": Packages(
        pip=(_TORCH, "numpy", "setuptools<81", "wheel", "packaging", "cloudpickle", "psutil",
             "pyyaml", "cffi"),
        debian=("g++", "cmake", "make"),
        steps=_HOROVOD,
        same=_TORCH_NAMES,
    ),
    "mpi": Packages(pip=("mpich==5.0.2", "mpi4py==4.1.2")),
    "jax": Packages(pip=("jax==0.10.2",)),
    "spark": Packages(pip=("pyspark==4.3.0",), debian=("default-jre-headless", "procps")),
}  # fmt: skip


def packages_of(framework: str) -> Packages | None:
    """None for a framework from another distribution: the user lists its packages."""
    return _PACKAGES.get(framework)


def ports_of(framework: str) -> tuple[str, ...]:
    """The ports and port ranges (`8700-8800`) that its nodes listen on by default; sorted."""
    numbers = {
        (int(low), int(high or low))
        for need in get_framework(framework).needs
        for low, high in re.findall(r"\b([0-9]+)(?:-([0-9]+))?\b", need.ports)
    }
    return tuple(f"{low}-{high}" if high > low else str(low) for low, high in sorted(numbers))


def check_framework(framework: str) -> None:
    """Raise InvalidInput if no framework has this name."""
    try:
        get_framework(framework)
    except InvalidInput as error:
        raise InvalidInput(*(p._replace(path="--framework") for p in error.problems)) from None
