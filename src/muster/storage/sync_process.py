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
#: The one that is set if it connects to public addresses only (`private_addresses`).
SYNC_PUBLIC_ONLY = "MUSTER_SYNC_PUBLIC_ONLY"

#: Variables with which a process loads other code.
_LOADERS = ("LD_", "PYTHON", "GCONV_PATH")
#: Its exit code if it has refused to connect to an address, and why, for a user.
REFUSED = 3
REFUSAL = "it leads to an address of the server's own network"


def sync_process(
    verb: Verb,
    folder: Path,
    url: str,
    environ: Mapping[str, str],
    limit: int | None = None,
    *,
    public_only: bool = False,
) -> tuple[list[str], dict[str, str]]:
    """The command line and the environment. environ: variables that may give access to the URL.
    limit: the most bytes that may be at the URL; None: any number. public_only: whether it connects
    to addresses of the public internet only."""
    # -P: a file in the folder of this process takes no module's place
    argv = [sys.executable, "-P", "-m", "muster.storage.sync", verb, str(folder)]
    path = os.pathsep.join(filter(None, sys.path))
    more = [] if limit is None else [str(limit)]
    made = dict(environ)
    if public_only:
        # neither variables nor files in HOME bring in code that could connect anywhere
        made = {name: text for name, text in environ.items() if not name.startswith(_LOADERS)}
        made |= {SYNC_PUBLIC_ONLY: "1", "PYTHONNOUSERSITE": "1"}
        made["HF_HUB_DISABLE_XET"] = "1"  # a back end of hf:// that connects outside Python
    return [*argv, *more], made | {"PYTHONPATH": path, SYNC_URL: url}
