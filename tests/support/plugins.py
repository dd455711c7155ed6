"""Plug-ins that pages of the documentation show, installed like packages."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest

from muster.engines import registry

DOCS = Path(__file__).parents[2] / "docs"


def block(page: str, language: str, start: str = "") -> str:
    """The page's first block of code in the language that starts with the text."""
    text = (DOCS / page).read_text()
    found = re.findall(rf'```{language}(?: title="[^"]+")?\n(.*?)```', text, re.DOTALL)
    return next(code for code in found if code.startswith(start))


def install_from(page: str, site: Path, module: str, start: str) -> None:
    """Install the package of a page into a folder of the search path. start: how the code of its
    module begins."""
    project = tomllib.loads(block(page, "toml"))["project"]
    install(site, project["name"], project["version"], project["entry-points"])
    (site / f"{module}.py").write_text(block(page, "python", start))


def install(
    site: Path, name: str, version: str, entry_points: Mapping[str, Mapping[str, str]]
) -> None:
    """Install a package without modules. entry_points: group -> name -> `module:attribute`."""
    package = site / f"{name.replace('-', '_')}-{version}.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    sections = (
        f"[{group}]\n" + "".join(f"{entry} = {value}\n" for entry, value in listed.items())
        for group, listed in entry_points.items()
    )
    (package / "entry_points.txt").write_text("".join(sections))


def plug_in(monkeypatch: pytest.MonkeyPatch, *sites: Path) -> None:
    """Have this process, with the server of a test, and its commands find packages."""
    for site in sites:
        monkeypatch.setenv("PYTHONPATH", str(site), prepend=os.pathsep)
        monkeypatch.syspath_prepend(site)
    registry._plug_in.cache_clear()


def install_processes(site: Path) -> None:
    """Install the engine of docs/internals/own-session.md."""
    install_from("internals/own-session.md", site, "processes", '"""`engine: processes`')


def install_folders(site: Path) -> None:
    """Install the engine of docs/internals/engines.md."""
    install_from("internals/engines.md", site, "folders", '"""`engine: folders`')


def install_servers(site: Path) -> None:
    """Install the engines of `support.remote_engine` and `support.dialed_engine`."""
    engines = {
        "servers": "support.remote_engine:Servers",
        "shaped": "support.remote_engine:ShapedServers",
        "dialed": "support.dialed_engine:Dialed",
    }
    install(site, "muster-servers", "1", {"muster.engines": engines})
