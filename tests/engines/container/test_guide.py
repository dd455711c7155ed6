"""The commands of docs/guides/containers.md, with a Podman of the tests' own."""

from __future__ import annotations

from pathlib import Path

from support import podman_service
from support.command import json_of, muster, output_of
from support.podman_service import PodmanService

GUIDE = Path(__file__).parents[3] / "docs/guides/containers.md"


def test_what_the_guide_says_works(podman: PodmanService, own_home: Path) -> None:
    podman_service.add_engine(own_home, podman)
    command = "muster run --engine container --nodes 4 -- hostname"
    assert f"    {command}\n" in GUIDE.read_text()
    done = muster(*command.split()[1:], code=0)
    assert len([line for line in done.stdout.splitlines() if line.startswith("workers/")]) == 4
    lines = output_of("engines", "check", "container").splitlines()
    assert lines[0].startswith("yes engine: Podman ")
    assert lines[-1].startswith(f"yes image: {podman_service.IMAGE} is on this machine")
    assert podman.left(json_of("runs", "show", "last", "--json")["id"]) == []
