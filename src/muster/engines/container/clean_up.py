"""Removes what is left of a run that nobody drives any more."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from muster.engines.container import containers, volumes
from muster.engines.container.api import CannotReach, Daemon, Refused
from muster.errors import EngineError
from muster.storage.home import RunDir

_AT_ONCE = 8


def end_containers(daemon: Daemon, run_id: str, folder: RunDir) -> None:
    """Remove all containers of a run, and what they have shared. Returns when they are gone. Raises
    EngineError if that cannot be confirmed."""
    try:
        containers.remove_extra(daemon, run_id)
        found = containers.list_containers(daemon, run_id)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(lambda one: containers.remove(daemon, one.id), found))
        containers.remove_network(daemon, run_id)
        containers.remove_folder(folder.containers)
        volumes.remove_files(run_id)
    except (CannotReach, Refused, OSError) as error:
        raise EngineError(f"its containers could not be removed: {error}") from None
