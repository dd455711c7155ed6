"""The process that copies between a URL and a folder (`storage.sync`)."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

from msgspec import Struct

from muster.errors import StoreError

#: Copy in what there may be, copy in what has to be there, copy back.
Verb = Literal["in", "need", "out"]

#: The environment variable with the URL. It may contain a password, and other users can read
#: command lines.
SYNC_URL = "MUSTER_SYNC_URL"
#: The one that is set if it connects to public addresses only (`private_addresses`).
SYNC_PUBLIC_ONLY = "MUSTER_SYNC_PUBLIC_ONLY"

#: The one that has `Access.own_storage`.
SYNC_OWN_STORAGE = "MUSTER_SYNC_OWN_STORAGE"

#: Variables with which a process loads other code.
_LOADERS = ("LD_", "PYTHON", "GCONV_PATH")
#: Its exit code if it has refused to connect to an address, and why, for a user.
REFUSED = 3
REFUSAL = "it leads to an address of the server's own network"


class Access(Struct, frozen=True):
    """How the process reaches URLs."""

    environ: Mapping[str, str]
    """Variables that may give access to them."""
    public_only: bool = False
    """Whether it connects to addresses of the public internet only."""
    own_storage: str = ""
    """HOST:PORT of the server's own object storage, which it reaches for oci:// nevertheless; "":
    there is none."""
    why_denied: Callable[[str, bool], str] | None = None
    """See `RunContext.check_url`; None: policies do not decide."""

    def explain(self, url: str, *, written: bool) -> str:
        """Why policies do not let it copy from a URL or, if written, also to it: a sentence; "" if
        they do, or cannot be read."""
        if self.why_denied is None:
            return ""
        try:
            return self.why_denied(url, written)
        except StoreError as error:
            sys.stderr.write(f"muster: the policies cannot be read: {error}\n")
            return ""


def sync_process(
    verb: Verb, folder: Path, url: str, access: Access, limit: int | None = None
) -> tuple[list[str], dict[str, str]]:
    """The command line and the environment. limit: the most bytes that may be at the URL; None: any
    number."""
    # -P: a file in the folder of this process takes no module's place
    argv = [sys.executable, "-P", "-m", "muster.storage.sync", verb, str(folder)]
    path = os.pathsep.join(filter(None, sys.path))
    more = [] if limit is None else [str(limit)]
    environ = access.environ
    made = dict(environ)
    if access.public_only:
        # neither variables nor files in HOME bring in code that could connect anywhere
        made = {name: text for name, text in environ.items() if not name.startswith(_LOADERS)}
        own = access.own_storage if url.startswith("oci://") else ""
        made |= {SYNC_PUBLIC_ONLY: "1", SYNC_OWN_STORAGE: own, "PYTHONNOUSERSITE": "1"}
        made["HF_HUB_DISABLE_XET"] = "1"  # a back end of hf:// that connects outside Python
    return [*argv, *more], made | {"PYTHONPATH": path, SYNC_URL: url}
