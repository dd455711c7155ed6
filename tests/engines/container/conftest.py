from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support import podman_service
from support.faults import until
from support.podman_service import PodmanService
from support.sessions import Session, make_plan

MakeSession = Callable[..., Session]


@pytest.fixture
def podman() -> PodmanService:
    """That of this process."""
    podman_service.skip_without_podman()
    return podman_service.shared_podman()


@pytest.fixture
def run(podman: PodmanService, own_home: Path) -> Iterator[MakeSession]:
    """Opens sessions of the engine. Afterwards nothing of them may be left."""
    podman_service.add_engine(own_home, podman)
    made: list[Session] = []

    def make(command: str, nodes: int = 1, *, keep: bool = False, **more: Any) -> Session:
        plan = make_plan(command, nodes, **more)
        (own_home / "runs" / plan.run_id).mkdir(parents=True)
        made.append(Session("container", own_home, plan, keep=keep))
        return made[-1]

    yield make
    runs = [one.plan.run_id for one in made]
    are_closed = [one.process.poll() is not None for one in made]
    for one in made:
        one.abandon()
    left = [one for one in runs if podman.containers(one) or f"muster-{one}" in podman.networks()]
    for run_id in left:
        podman.remove(run_id)
    if all(are_closed):
        assert not left, "nothing of a run that is over is left"
        assert not [one for one in made if (one.folder / "containers").exists()]
    until(lambda: not any(podman.containers(one) for one in runs), "all containers are gone")
