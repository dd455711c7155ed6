"""Whether the runs of several owners can be kept apart on one server. Pure."""

from __future__ import annotations

_EVERYTHING = "files, environment, network and credentials"
_WAY_OUT = "or use a server of your own"


def why_refused(
    engine: str, *, separates: bool, account: bool, root: bool, owner: str, first_owner: str | None
) -> str:
    """Why an owner may not start a run; "" if that is fine. It names no other owner, who may be of
    another project.

    engine: its name. separates: `Capabilities.separates_owners`. account: whether the owner has a
    Unix account, as owners have on a server that runs as root, unless its settings say otherwise.
    root: whether the server runs as root. first_owner: who was the first to start a run on the
    server; None if nobody has. Somebody who is alone on a server needs no separation.
    """
    if (separates and account) or first_owner in (None, owner):
        return ""
    if separates and root:
        return (
            f"{owner} cannot start runs here, because another user has runs on this server, whose "
            "server.toml says separate_owners = false: the programs of both would be root's, and "
            f"could read each other's {_EVERYTHING}; set separate_owners = true, {_WAY_OUT}"
        )
    if separates:
        return (
            f"{owner} cannot start runs here, because another user has runs on this server: as it "
            "does not run as root, the programs of both would be one Unix user's, and could read "
            f"each other's {_EVERYTHING}; run `muster server` as root, {_WAY_OUT}"
        )
    return (
        f"{owner} cannot start runs on engine {engine} here, because another user has runs on this "
        f"server: engine {engine} runs the programs of all as one user, who could read each "
        f"other's {_EVERYTHING}; use engine local of a server that runs as root, {_WAY_OUT}"
    )
