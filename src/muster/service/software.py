"""Frameworks and programs that jobs may use, as far as they are installed on this machine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata

from msgspec import Struct

from muster.engines.findings import Finding
from muster.frameworks.packages import PACKAGES, Packages, install_command

#: Programs by what they are for.
_PROGRAMS = {
    "containers": ("podman", "docker", "nerdctl", "apptainer", "singularity"),
    "Slurm": ("sbatch", "srun"),
    "MPI": ("mpirun", "mpiexec"),
    "git": ("git",),
}
#: Packages that only some jobs need. Programs in C, or with Spark's own folder, do without; those
#: of OCI are for engine `oci`, and for mounts and work directories at `oci://`.
_OPTIONAL = {
    "mpi": Packages({"mpi4py": ("mpi4py",)}, "mpi"),
    "spark": Packages({"pyspark": ("pyspark",)}),
    "OCI": Packages({"oci": ("oci",)}, "oci"),
    "oci://": Packages({"ocifs": ("ocifs",)}),
}
#: Debian's packages of programs.
_DEBIAN = {
    "podman": "podman",
    "docker": "docker.io",
    "sbatch": "slurm-client",
    "srun": "slurm-client",
    "mpirun": "openmpi-bin",
    "mpiexec": "openmpi-bin",
    "git": "git",
}
_TIMEOUT = 5.0  # seconds for a program to print its version
_VERSION = re.compile(r"\d+(?:\.\w+)+")


class Software(Struct, frozen=True):
    """A package of a framework, or a program."""

    name: str
    #: The framework or task that it is for.
    used_for: str
    #: "" if it is installed and does not tell its version; None if it is not installed.
    version: str | None
    #: Where a program is; if it is missing, how to install it.
    where: str = ""

    @property
    def shown_version(self) -> str:
        return "-" if self.version is None else self.version or "unknown"

    def finding(self) -> Finding:
        """As one of the abilities of this machine."""
        if self.version is None:
            advice = self.where or f"install it for {self.used_for}"
            return Finding(f"{self.used_for}: {self.name}", False, "is not installed", advice)
        place = f" at {self.where}" if self.where else ""
        return Finding(f"{self.used_for}: {self.name}", True, f"{self.shown_version}{place}")


def framework_packages() -> list[Software]:
    """The packages of each framework, for the Python of this process. None is imported."""
    found = []
    for framework, packages in {**PACKAGES, **_OPTIONAL}.items():
        modules = packages.modules.items()
        versions = {name: _package_version(name, several) for name, several in modules}
        missing = [name for name, version in versions.items() if version is None]
        command = install_command(packages, missing)
        found += [
            Software(name, framework, version, "" if version else command)
            for name, version in versions.items()
        ]
    return found


def _package_version(name: str, modules: tuple[str, ...]) -> str | None:
    for candidate in (name, *modules, *(f"{module}-cpu" for module in modules)):
        try:
            return metadata.version(candidate.replace("_", "-"))
        except metadata.PackageNotFoundError:
            continue
    return None


def programs() -> list[Software]:
    """The programs for containers, Slurm, MPI and git, as nodes would find them."""
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)])
    wanted = [(name, use) for use, names in _PROGRAMS.items() for name in names]
    places = [shutil.which(name, path=path) for name, _ in wanted]
    with ThreadPoolExecutor(len(wanted)) as pool:
        versions = list(pool.map(_program_version, places))
    return [
        Software(name, use, version, place or _how_to_install(name))
        for (name, use), place, version in zip(wanted, places, versions, strict=True)
    ]


def _how_to_install(program: str) -> str:
    package = _DEBIAN.get(program)
    return f"apt-get install {package}" if package else ""


def _program_version(program: str | None) -> str | None:
    """The first version number that a program prints for `--version`."""
    if program is None:
        return None
    try:
        done = subprocess.run(
            [program, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = _VERSION.search((done.stdout + done.stderr).decode(errors="replace"))
    return found.group() if found else ""
