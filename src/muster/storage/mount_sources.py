"""Check that the source of a mount can be mounted, and find the directories that Muster creates."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from muster.errors import Problem
from muster.secrets import redacted
from muster.spec.wording import alternatives

#: The prefix of a source -> the owner of the directory.
_OWNERS: dict[str, Literal["node", "incarnation", "run", "home"]] = {
    "scratch:node/": "node",
    "scratch:incarnation/": "incarnation",
    "scratch:life/": "incarnation",  # in plans of older versions
    "scratch:run/": "run",
    "volume:": "home",
}
_SCRATCH = ("scratch:node/NAME", "scratch:incarnation/NAME", "scratch:run/NAME")
_VOLUME = ("volume:NAME",)
_NAME = r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,255}"


class Named(NamedTuple):
    """A directory that Muster creates."""

    #: Who shares it; `home`: all runs of this MUSTER_HOME.
    of: Literal["node", "incarnation", "run", "home"]
    name: str


def named_source(source: str) -> Named:
    """The directory that a source of the kind `scratch` or `volume` names. Raises ValueError for a
    source that `check_sources` refuses."""
    found = _parse_named(source)
    if found is None or not re.fullmatch(_NAME, found.name):
        raise ValueError(source)
    return found


def _parse_named(source: str) -> Named | None:
    for start, owner in _OWNERS.items():
        if source.startswith(start):
            return Named(owner, source.removeprefix(start))
    return None


def nfs_export(source: str) -> str:
    """The export that a source of the kind `nfs` names, as `HOST:/PATH`."""
    host, _, path = source.removeprefix("nfs://").partition("/")
    return f"{host.removesuffix(':')}:/{path}"


def check_sources(sources: Mapping[str, str]) -> list[Problem]:
    """The problems that can be found without network access. sources: source -> path in the
    spec."""
    return [p._replace(path=path) for source, path in sources.items() for p in _check(source)]


def _check(source: str) -> list[Problem]:
    from muster.spec.kinds import classify_source  # supervisors do not check sources

    kind = classify_source(source)
    if kind == "directory":
        return _check_directory(Path(source))
    if kind == "url":
        return _check_url(source)
    return _check_named(source) if kind in ("scratch", "volume") else []


def _check_directory(path: Path) -> list[Problem]:
    if not os.path.exists(path):  # Path.exists raises without permission
        return [Problem("", f"{path} not found", "create it, or check the path")]
    if not path.is_dir():
        return [Problem("", f"{path} is not a directory", "give its folder")]
    if not os.access(path, os.R_OK | os.X_OK):
        return [Problem("", f"{path} cannot be read", "check its permissions")]
    return []


def _check_named(source: str) -> list[Problem]:
    found = _parse_named(source)
    if found is None or not found.name:
        of_home = source.startswith("volume:")
        needs = "a name" if of_home or found is not None else "an owner and a name"
        hint = f"write {alternatives(_VOLUME if of_home else _SCRATCH)}"
        return [Problem("", f"{source} needs {needs}", hint)]
    if not re.fullmatch(_NAME, found.name):
        text = f"{source}: {found.name!r} cannot name a directory"
        return [Problem("", text, "use up to 255 letters, digits, . _ and -, but no ..")]
    return []


def _check_url(source: str) -> list[Problem]:
    """Check every protocol of a chained URL (`simplecache::s3://...`)."""
    protocols = [link.partition("://")[0] for link in source.split("::")]
    return [p for protocol in protocols for p in _check_protocol(redacted(source), protocol)]


def _check_protocol(shown: str, protocol: str) -> list[Problem]:
    from importlib.util import find_spec

    from fsspec.registry import known_implementations, registry

    from muster.storage.protocols import PROTOCOLS, protocol_named

    if protocol == "memory":
        text = f"{shown} is in the memory of one process; the run cannot read it"
        return [Problem("", text, "give a folder or a URL that other processes can read")]
    entry = protocol_named(protocol)
    registered = str(known_implementations.get(protocol, {}).get("class", "")).partition(".")[0]
    if not registered and protocol not in registry and not entry.package:
        known = ", ".join(sorted({"file", *(n for n, p in PROTOCOLS.items() if p.package)}))
        text = f"{shown}: no package can read {protocol}://"
        return [Problem("", text, f"supported are {known}")]
    module, package = entry.module or registered, entry.package or registered
    if module == "fsspec" or protocol in registry:
        return []
    if find_spec(module) is None:
        return [Problem("", f"{shown} needs {package}", f"pip install {package}")]
    return []
