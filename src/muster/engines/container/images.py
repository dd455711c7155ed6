"""Images: looks for them, and pulls them."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from typing import Any

from muster.engines.container.api import CannotReach, Daemon, Refused
from muster.engines.container.credentials import auth_header
from muster.engines.container.record import Image

#: Seconds without a sign of a registry.
_PULL_TIMEOUT = 300.0
#: How the engine's Go calls this machine's processor.
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


class NoImage(Exception):  # noqa: N818
    """The text is a sentence for people."""


def find_image(
    daemon: Daemon, name: str, pull: str, environ: Mapping[str, str], say: Callable[[str], None]
) -> Image:
    """The image with a name, which is pulled if that is the policy (`ContainerSettings.pull`). say:
    gets a phrase about what is waited for. Raises NoImage, CannotReach."""
    found = None if pull == "always" else look_up(daemon, name)
    if found is None:
        if pull == "never":
            raise NoImage(f"image {name} is not on this machine, and pull is `never`")
        _pull(daemon, name, environ, say)
        found = look_up(daemon, name)
        if found is None:
            raise NoImage(f"image {name} was pulled, but is not on this machine")
    own = _ARCHITECTURES.get(platform.machine(), platform.machine())
    if (made_for := found.get("Architecture") or own) != own:
        raise NoImage(f"image {name} is for {made_for}, and this machine is {own}")
    return _image(found)


def look_up(daemon: Daemon, name: str) -> Mapping[str, Any] | None:
    """What the engine says of an image; None if it is not on this machine. Raises CannotReach,
    Refused."""
    try:
        found: Mapping[str, Any] = daemon.get("images", name, "json")
    except Refused as error:
        if error.status == 404:
            return None
        raise
    return found


def _image(found: Mapping[str, Any]) -> Image:
    config = found.get("Config") or {}
    env = dict(one.partition("=")[::2] for one in config.get("Env") or ())
    return Image(
        str(found["Id"]),
        next(iter(found.get("RepoDigests") or ()), ""),
        str(config.get("User") or ""),
        tuple(config.get("Entrypoint") or ()),
        tuple(config.get("Cmd") or ()),
        str(config.get("WorkingDir") or ""),
        env.get("LD_PRELOAD", ""),
    )


def _pull(
    daemon: Daemon, name: str, environ: Mapping[str, str], say: Callable[[str], None]
) -> None:
    """Raises NoImage, CannotReach."""
    say(f"pulling {name}")
    query = {"fromImage": name}
    if ":" not in name.rpartition("/")[2] and "@" not in name:
        query["tag"] = "latest"  # without a tag, Docker pulls all of them
    headers = auth_header(name, environ)
    try:
        stream = daemon.stream("POST", ("images", "create"), query, headers, _PULL_TIMEOUT)
    except Refused as error:
        raise NoImage(f"image {name} cannot be pulled: {error}") from None
    layers: dict[str, tuple[int, int]] = {}
    told = -1
    try:
        for line in stream:
            if why := line.get("error") or (line.get("errorDetail") or {}).get("message"):
                raise NoImage(f"image {name} cannot be pulled: {why}")
            done = line.get("progressDetail") or {}
            if done.get("total"):
                layers[str(line.get("id"))] = int(done.get("current", 0)), int(done["total"])
                percent = (
                    100
                    * sum(a for a, _ in layers.values())
                    // max(1, sum(b for _, b in layers.values()))
                )
                if percent // 10 > told:
                    told = percent // 10
                    say(f"pulling {name}, {percent} %")
    except CannotReach as error:
        raise NoImage(f"image {name} cannot be pulled: {error}") from None
    finally:
        stream.close()
