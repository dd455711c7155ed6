"""Sources of mounts: what they are, and whether they are there."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, NamedTuple

from muster.errors import Problem
from muster.secrets import redacted

Kind = Literal["directory", "nfs", "url", "scratch", "volume"]

#: The beginning of a source -> whose it is.
_OWNERS: dict[str, Literal["node", "life", "run", "home"]] = {
    "scratch:node/": "node",
    "scratch:life/": "life",
    "scratch:run/": "run",
    "volume:": "home",
}
_NAME = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,255}")

#: Protocol -> (module, what to install), where fsspec's own list does not say it. The rest come
#: with fsspec, or with a package that made itself known to it.
_PACKAGES = {
    "s3": ("s3fs", "s3fs"),
    "s3a": ("s3fs", "s3fs"),
    "gs": ("gcsfs", "gcsfs"),
    "gcs": ("gcsfs", "gcsfs"),
    "oci": ("ocifs", "ocifs"),
    "abfs": ("adlfs", "adlfs"),
    "abfss": ("adlfs", "adlfs"),
    "az": ("adlfs", "adlfs"),
    "http": ("aiohttp", "aiohttp"),
    "https": ("aiohttp", "aiohttp"),
    "sftp": ("paramiko", "paramiko"),
    "ssh": ("paramiko", "paramiko"),
    "smb": ("smbprotocol", "smbprotocol"),
    "hdfs": ("pyarrow", "pyarrow"),
}


def classify_source(source: str) -> Kind:
    """A directory, an NFS export (`nfs://host/path`, `host:/path`), an fsspec URL, or a name for
    something Muster finds a place for (`scratch:node/NAME`, `scratch:life/NAME`,
    `scratch:run/NAME`, `volume:NAME`)."""
    if source.startswith("nfs://"):
        return "nfs"
    if "://" in source:
        return "url"
    host, colon, path = source.partition(":")
    if colon and not path.startswith("/") and host in ("scratch", "volume"):
        return "scratch" if host == "scratch" else "volume"
    return "nfs" if colon and host and path.startswith("/") and "/" not in host else "directory"


#: The variable that names the URL to the process that copies it (`storage.sync`).
SYNC_URL = "MUSTER_SYNC_URL"


class Named(NamedTuple):
    """A directory Muster finds a place for. of: whose it is; a volume is everybody's."""

    of: Literal["node", "life", "run", "home"]
    name: str


def named_source(source: str) -> Named:
    """What a source of the kind `scratch` or `volume` names. Raises ValueError where it does
    not: `check_sources` would have told."""
    found = _named(source)
    if found is None or not _NAME.fullmatch(found.name):
        raise ValueError(source)
    return found


def _named(source: str) -> Named | None:
    for start, owner in _OWNERS.items():
        if source.startswith(start):
            return Named(owner, source.removeprefix(start))
    return None


def check_sources(sources: Mapping[str, str]) -> list[Problem]:
    """What is wrong with them, as far as can be told without reaching out. sources: each with its
    path in the spec."""
    return [p._replace(path=path) for source, path in sources.items() for p in _check(source)]


def _check(source: str) -> list[Problem]:
    kind = classify_source(source)
    if kind == "directory":
        return _check_directory(Path(source))
    if kind == "url":
        return _check_url(source)
    if kind in ("scratch", "volume"):
        return _check_named(source)
    if os.geteuid() == 0:
        return []
    text = f"{source} can only be mounted by root"
    return [Problem("", text, "mount it yourself and give the directory")]


def _check_directory(path: Path) -> list[Problem]:
    if not os.path.exists(path):  # Path.exists raises where we may not look
        return [Problem("", f"there is no {path}", "make it, or check the path")]
    if not path.is_dir():
        return [Problem("", f"{path} is no directory", "give the folder it is in")]
    if not os.access(path, os.R_OK | os.X_OK):
        return [Problem("", f"{path} cannot be read", "check its permissions")]
    return []


def _check_named(source: str) -> list[Problem]:
    found = _named(source)
    if found is None:
        text = f"{source} does not say whose it is"
        hint = "scratch:node/NAME is a directory of each node, scratch:run/NAME one for all of them"
        return [Problem("", text, hint)]
    if not _NAME.fullmatch(found.name):
        text = f"{source}: {found.name!r} cannot name a directory"
        return [Problem("", text, "use up to 255 letters, digits, . _ and -, but no ..")]
    return []


def _check_url(source: str) -> list[Problem]:
    """Chained URLs (`simplecache::s3://...`) need what every link of them needs."""
    protocols = [link.partition("://")[0] for link in source.split("::")]
    return [p for protocol in protocols for p in _check_protocol(redacted(source), protocol)]


def _check_protocol(shown: str, protocol: str) -> list[Problem]:
    from fsspec.registry import known_implementations, registry

    if protocol == "memory":
        text = f"{shown} is the memory of one process, gone before the run could read it"
        return [Problem("", text, "give a folder or a URL that others can reach")]
    own = str(known_implementations.get(protocol, {}).get("class", ""))
    if not own and protocol not in registry and protocol not in _PACKAGES:
        known = ", ".join(sorted({*_PACKAGES, "file"}))
        text = f"{shown}: nothing knows how to read {protocol}://"
        return [Problem("", text, f"known are {known}")]
    module, package = _PACKAGES.get(protocol) or (own.partition(".")[0], own.partition(".")[0])
    if module == "fsspec" or protocol in registry:
        return []
    if find_spec(module) is None:
        return [Problem("", f"{shown} needs {package}", f"pip install {package}")]
    return []
