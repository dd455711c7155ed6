"""Build the image of a run from a folder, before the run is prepared."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from muster.engines.container.engine import ContainerEngine
from muster.engines.registry import engine_named
from muster.errors import InvalidInput, Problem
from muster.storage.home import default_home


def build_image(
    engine: str, folder: Path, say: Callable[[str], None], *, only_name: bool = False
) -> str:
    """Build an image, unless it is there. Returns its name. only_name: build none. say: gets lines
    on the progress. Raises InvalidInput, EngineError."""
    found = engine_named(engine, default_home())
    if not isinstance(found, ContainerEngine):
        text = f"engine {engine} builds no images"
        raise InvalidInput(Problem("--build", text, "use --engine container"))
    source = found.image_source(folder)
    if not only_name:
        found.build(source, os.environ, say)
    return source.image
