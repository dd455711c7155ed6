"""What an engine `slurm` finds, for `muster engines check`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from muster.engines.findings import Finding
from muster.engines.slurm.client import OLDEST, CannotRun, version
from muster.engines.slurm.listen import listen_address
from muster.engines.slurm.partitions import partitions
from muster.engines.slurm.profile import SlurmProfile
from muster.engines.slurm.shared_folder import folder_of, provide_program


def examine(profile: SlurmProfile, home: Path, environ: Mapping[str, str]) -> list[Finding]:
    """Findings about the cluster, and the folder that its nodes share."""
    found = []
    try:
        found.append(_version(version(environ)))
        found.append(_partitions(profile, environ))
    except CannotRun as error:
        advice = "set SLURM_CONF, or ask who runs the cluster"
        return [*found, Finding("Slurm", False, str(error), advice)]
    found.append(_folder(folder_of(profile, home)))
    found.append(_address(profile, environ))
    return found


def _version(release: tuple[int, ...]) -> Finding:
    text = ".".join(map(str, release))
    works = release >= OLDEST
    return Finding("Slurm", works, f"version {text}", "" if works else "22.05 or newer is needed")


def _partitions(profile: SlurmProfile, environ: Mapping[str, str]) -> Finding:
    """The partitions that nodes can be in, with how many of their nodes can be used."""
    usable = {
        one.name: f"{one.name} ({one.nodes} nodes, limit {one.limit})"
        for one in partitions(environ)
        if one.up
    }
    says = ", ".join(usable.values()) or "none is up"
    partition = profile.options.get("partition")
    if partition is not None and not set(partition.split(",")) & usable.keys():
        return Finding("partitions", False, says, f"there is no {partition}: change the profile")
    return Finding("partitions", bool(usable), says)


def _folder(folder: Path) -> Finding:
    try:
        provide_program(folder)
    except CannotRun as error:
        return Finding("shared folder", False, str(error))
    except OSError as error:
        advice = "set `folder` to one that the nodes share"
        return Finding("shared folder", False, f"{folder}: {error.strerror}", advice)
    return Finding("shared folder", True, f"{folder} can be written; nodes have to see it, too")


def _address(profile: SlurmProfile, environ: Mapping[str, str]) -> Finding:
    address = profile.listen or listen_address(environ)
    if isinstance(address, CannotRun):
        return Finding("address", False, str(address))
    return Finding("address", True, f"nodes reach this machine at {address}")
