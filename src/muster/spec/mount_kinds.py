"""Kinds of mounts, which follow from the text of their source."""

from __future__ import annotations

from typing import Literal

Kind = Literal["directory", "nfs", "url", "scratch", "volume"]


def classify_source(source: str) -> Kind:
    """The kind of a source: a directory, an NFS export (`nfs://host/path`, `host:/path`), an fsspec
    URL, or a directory that Muster creates (`scratch:node/NAME`, `scratch:incarnation/NAME`,
    `scratch:run/NAME`, `volume:NAME`)."""
    if source.startswith("nfs://"):
        return "nfs"
    if "://" in source:
        return "url"
    host, colon, path = source.partition(":")
    if colon and not path.startswith("/") and host in ("scratch", "volume"):
        return "scratch" if host == "scratch" else "volume"
    return "nfs" if colon and host and path.startswith("/") and "/" not in host else "directory"
