"""The process that copies between a URL and a folder (`storage.sync`)."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

#: Copy in what there may be, copy in what has to be there, copy back.
Verb = Literal["in", "need", "out"]

#: The environment variable with the URL. It may contain a password, and other users can read
#: command lines.
SYNC_URL = "MUSTER_SYNC_URL"


def sync_process(
    verb: Verb, folder: Path, url: str, environ: Mapping[str, str], limit: int | None = None
) -> tuple[list[str], dict[str, str]]:
    """The command line and the environment. environ: variables that may give access to the URL.
    limit: the most bytes that may be at the URL; None: any number."""
    # -P: a file in the folder of this process takes no module's place
    argv = [sys.executable, "-P", "-m", "muster.storage.sync", verb, str(folder)]
    path = os.pathsep.join(filter(None, sys.path))
    more = [] if limit is None else [str(limit)]
    return [*argv, *more], {**environ, "PYTHONPATH": path, SYNC_URL: url}
