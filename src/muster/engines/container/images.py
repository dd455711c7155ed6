"""Images: looks for them, and pulls them."""

from __future__ import annotations

import platform
import re
from collections.abc import Callable, Mapping
from typing import Any

from muster.engines.container.api import CannotReach, Daemon, Refused
from muster.engines.container.credentials import NoPassword, registry_of
from muster.engines.container.record import Image
from muster.plan.model import GroupPlan, RunPlan

#: Seconds without a sign of a registry.
_PULL_TIMEOUT = 300.0
#: How the engine's Go calls this machine's processor.
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
#: What engines say when a registry wants a login, or has refused for another reason that lasts.
_LOGIN = re.compile(r"unauthorized|authentication required|denied|forbidden|\b40[13]\b", re.I)
_FINAL = re.compile(
    rf"{_LOGIN.pattern}|unknown|not found|does not exist|no matching manifest|\b404\b"
    r"|no image found in|invalid reference|short-name|unsupported",
    re.I,
)
#: What they say when the registry could not be reached, or is busy.
_PASSING = re.compile(
    r"dial tcp|no such host|connection refused|time-?out|reset by peer|\bEOF\b|i/o"
    r"|toomanyrequests|\b(?:429|50\d)\b",
    re.I,
)


#: The name of an image -> the header with the credentials for its registry. Raises NoPassword.
Login = Callable[[str], Mapping[str, str]]


class NoImage(Exception):  # noqa: N818
    """The text is a sentence for people."""

    def __init__(self, text: str, *, final: bool) -> None:
        super().__init__(text)
        #: Whether it is not there later either.
        self.final = final


def find_image(
    daemon: Daemon,
    name: str,
    pull: str,
    login: Login,
    say: Callable[[str], None],
    check: Callable[[str], str] | None = None,
) -> Image:
    """The image with a name, which is pulled if that is the policy (`ContainerSettings.pull`).
    login: makes the header for its registry, see `credentials.auth_header`. say: gets a phrase
    about what is waited for. check: see `RunContext.check_image`. Raises NoImage, CannotReach."""
    # also of one that another run has pulled
    if check is not None and (why := check(name)):
        raise NoImage(why, final=True)
    found = None if pull == "always" else look_up(daemon, name)
    is_new = found is None
    if found is None:
        if pull == "never":
            text = f"image {name} is not on this machine, and pull is `never`"
            raise NoImage(text, final=True)
        _pull(daemon, name, login, say)
        found = look_up(daemon, name)
        if found is None:
            raise NoImage(f"image {name} was pulled, but is not on this machine", final=True)
    if why := why_unusable(name, found):
        raise NoImage(why, final=True)
    image = image_of(found)
    if is_new and image.digest:  # what the tag means today
        say(f"pulled {name}, which is {image.digest}")
    return image


def why_unusable(name: str, found: Mapping[str, Any]) -> str:
    """Why an image cannot be used on this machine: a sentence; "" if it can. found: as from
    `look_up`."""
    own = _ARCHITECTURES.get(platform.machine(), platform.machine())
    if (made_for := found.get("Architecture") or own) != own:
        return f"image {name} is for {made_for}, and this machine is {own}"
    return ""


def why_no_program(plan: RunPlan, group: GroupPlan, image: Image, name: str) -> str:
    """Why a group cannot run the program of its image: a sentence; "" if it can, or does not."""
    if not plan.runs_image(group) or image.entrypoint or image.command:
        return ""
    if group.command or group.args or group.node_args:
        return ""
    return f"image {name} has neither ENTRYPOINT nor CMD: give a command"


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


def image_of(found: Mapping[str, Any]) -> Image:
    """What is kept of an image. found: as from `look_up`."""
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


def _pull(daemon: Daemon, name: str, login: Login, say: Callable[[str], None]) -> None:
    """Raises NoImage, CannotReach."""
    say(f"pulling {name}")
    query = {"fromImage": name}
    if ":" not in name.rpartition("/")[2] and "@" not in name:
        query["tag"] = "latest"  # without a tag, Docker pulls all of them
    try:
        headers = login(name)
    except NoPassword as error:
        raise NoImage(f"image {name} cannot be pulled: {error}", final=True) from None
    try:
        stream = daemon.stream("POST", ("images", "create"), query, headers, _PULL_TIMEOUT)
    except Refused as error:
        raise _not_pulled(name, str(error)) from None
    layers: dict[str, tuple[int, int]] = {}
    told = -1
    try:
        for line in stream:
            if why := line.get("error") or (line.get("errorDetail") or {}).get("message"):
                raise _not_pulled(name, str(why))
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
        raise _not_pulled(name, str(error)) from None
    finally:
        stream.close()


def _not_pulled(name: str, why: str) -> NoImage:
    """why: the engine's words, which are those of the registry, or about the way there."""
    final = bool(_FINAL.search(why)) and not _PASSING.search(why)
    hint = ""
    if final and _LOGIN.search(why):
        hint = f" (log in to {registry_of(name)} with `docker login` or `podman login`, or set"
        hint += " `registry` in the engine's profile)"
    return NoImage(f"image {name} cannot be pulled: {why}{hint}", final=final)
