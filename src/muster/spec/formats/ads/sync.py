"""ADS's synchronisation of a folder with a bucket (`SYNC_ARTIFACTS`), as a mount."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from muster.spec.formats.ads.conversion import Conversion
from muster.spec.formats.ads.mounts import write_back
from muster.spec.formats.ads.variables import SYNC_DIR, SYNCED
from muster.spec.formats.documents import is_placeholder
from muster.spec.problem_places import Origin


def synced_folder(
    env: Mapping[str, str],
    work_dir: str | None,
    places: Mapping[str, Origin],
    conversion: Conversion,
) -> dict[str, Any] | None:
    """The mount of the synchronised folder; None if it is the user's own and not copied.

    ADS: SYNC_ARTIFACTS=1 copies the folder to a bucket while the program runs. Without it, the
    folder is the node's own and is deleted with the run.

    env: variables of all nodes. places: variable -> where it is set, or could be.
    """
    if env.get("SYNC_ARTIFACTS") != "1":
        return None if SYNC_DIR in env else {"source": "scratch:node/sync", "path": SYNCED}
    if "SYNC_SLEEP" in env:
        when = "at the end, and whenever a program appends to $MUSTER_CHECKPOINT"
        conversion.notes.add("SYNC_SLEEP", f"is not used: files are copied {when}")
    try:
        url = sync_url(env.get("WORKSPACE"), env.get("WORKSPACE_PREFIX"), work_dir)
    except ValueError as error:
        hint = "write oci://bucket@namespace, or a workDir of the same namespace"
        where = places["WORKSPACE" if env.get("WORKSPACE") else "SYNC_ARTIFACTS"]
        conversion.refuse(where.path, str(error), hint)
        return None
    return write_back(url, env.get(SYNC_DIR, SYNCED))


def sync_url(workspace: str | None, prefix: str | None, work_dir: str | None) -> str:
    """The URL that SYNC_DIR is copied to.

    A bucket's name alone is in the namespace of work_dir; without a workspace, the URL is below
    work_dir. Raises ValueError, with a message for users, if the result is not a URL.
    """
    where = workspace or work_dir or ""
    if "://" not in where:
        protocol, _, rest = (work_dir or "").partition("://")
        namespace = rest.partition("/")[0].partition("@")[2]
        if not (workspace and protocol == "oci" and namespace):
            raise ValueError(f"WORKSPACE is not a URL: {where!r}")
        where = f"oci://{where.strip('/')}@{namespace}"
    if is_placeholder(where) or is_placeholder(prefix or ""):
        raise ValueError(f"{where} was not filled in")
    parts = [where.rstrip("/"), (prefix or "").strip("/") if workspace else "", "sync"]
    return "/".join(filter(None, parts))
