"""Sources of mounts: what they are, and whether they are there."""

from __future__ import annotations

import os
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from muster.errors import Problem

Kind = Literal["directory", "nfs", "url"]

#: fsspec protocol -> the package it needs. The rest come with fsspec itself.
_PACKAGES = {
    "s3": "s3fs",
    "s3a": "s3fs",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "oci": "ocifs",
    "abfs": "adlfs",
    "abfss": "adlfs",
    "az": "adlfs",
    "http": "aiohttp",
    "https": "aiohttp",
    "sftp": "paramiko",
    "ssh": "paramiko",
    "smb": "smbprotocol",
    "hdfs": "pyarrow",
}


def classify_source(source: str) -> Kind:
    """A directory, an NFS export (`nfs://host/path`, `host:/path`) or an fsspec URL."""
    if source.startswith("nfs://"):
        return "nfs"
    if "://" in source:
        return "url"
    host, colon, path = source.partition(":")
    return "nfs" if colon and path.startswith("/") and "/" not in host else "directory"


def check_sources(sources: Iterable[str]) -> list[Problem]:
    """What is wrong with them, as far as can be told without reaching out."""
    problems = []
    for source in dict.fromkeys(sources):
        kind = classify_source(source)
        if kind == "directory":
            problems += _check_directory(Path(source))
        elif kind == "url":
            problems += _check_url(source)
        elif os.geteuid() != 0:
            text = f"{source} can only be mounted by root"
            hint = "mount it yourself and give the directory"
            problems.append(Problem("mounts", text, hint))
    return problems


def _check_directory(path: Path) -> list[Problem]:
    if not path.exists():
        return [Problem("mounts", f"there is no {path}", "make it, or check the path")]
    if not path.is_dir():
        return [Problem("mounts", f"{path} is no directory", "give the folder it is in")]
    if not os.access(path, os.R_OK | os.X_OK):
        return [Problem("mounts", f"{path} cannot be read", "check its permissions")]
    return []


def _check_url(source: str) -> list[Problem]:
    from fsspec.registry import known_implementations

    protocol = source.partition("://")[0]
    if protocol not in known_implementations and protocol not in _PACKAGES:
        known = ", ".join(sorted({*_PACKAGES, "file", "memory"}))
        text = f"nothing knows how to read {protocol}://"
        return [Problem("mounts", f"{source}: {text}", f"known are {known}")]
    package = _PACKAGES.get(protocol)
    if package is not None and find_spec(package) is None:
        return [Problem("mounts", f"{source} needs {package}", f"pip install {package}")]
    return []
