"""Where the API of a container engine listens."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Mapping, Sequence

#: Where Docker listens, and Podman's service of the system; that of a user is below
#: $XDG_RUNTIME_DIR.
_DOCKER, _PODMAN = "/var/run/docker.sock", "/run/podman/podman.sock"
_SCHEME = "unix://"


class NoSocket(Exception):  # noqa: N818
    """No container engine can be used. The text is a sentence that says what to do."""


def find_socket(setting: str, environ: Mapping[str, str]) -> str:
    """The path of the first socket that accepts connections. Raises NoSocket.

    setting: the profile's, a path or `unix://` and a path; "": $DOCKER_HOST, or where engines
    usually listen.
    """
    failures = []
    for path in candidates(setting, environ):
        why = _why_not(path)
        if not why:
            return path
        failures.append(f"{path}: {why}")
    raise NoSocket(
        f"no container engine answers ({'; '.join(failures)}). Start Docker, or Podman's service "
        "with `systemctl --user start podman.socket`, or name its socket with `muster engines add "
        "container --socket PATH`"
    )


def candidates(setting: str, environ: Mapping[str, str]) -> Sequence[str]:
    """The paths to try, in order. Raises NoSocket for an address that is none of a Unix socket."""
    if given := setting or environ.get("DOCKER_HOST", ""):
        return [path_of(given)]
    runtime = environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
    own = [f"{runtime}/podman/podman.sock", f"{runtime}/docker.sock"]
    return [_DOCKER, *own, _PODMAN]


def path_of(address: str) -> str:
    """The path in `unix://PATH`, or the path itself. Raises NoSocket."""
    path = address.removeprefix(_SCHEME)
    if path.startswith("/"):
        return path
    raise NoSocket(
        f"{address} is not the path of a Unix socket, as in unix:///var/run/docker.sock: an engine "
        "on another machine cannot be used (`muster engines add hosts` is for other machines)"
    )


def is_rootless(path: str) -> bool:
    """Whether the engine runs as an ordinary user, whose socket it is."""
    return os.stat(path).st_uid != 0


def _why_not(path: str) -> str:
    """Why nothing can be reached there, for people; "" if it can."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(5)
        try:
            sock.connect(path)
        except PermissionError:
            return _not_permitted(path)
        except FileNotFoundError:
            return "there is no such socket"
        except OSError as error:
            if error.errno == errno.ECONNREFUSED:
                return "nothing listens there"
            return error.strerror or str(error)
    return ""


def _not_permitted(path: str) -> str:
    import grp  # rarely needed

    try:
        group = grp.getgrgid(os.stat(path).st_gid).gr_name
    except (OSError, KeyError):
        return "you may not use it"
    if group == "root":
        return "only root may use it"
    return (
        f"you may not use it: it is for the members of group {group} (`sudo usermod -aG {group} "
        "$USER`, then log in again)"
    )
