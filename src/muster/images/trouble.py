"""What a builder's last words mean, in plain ones."""

from __future__ import annotations

import re
from collections.abc import Sequence

#: How many of the builder's last lines tell why it failed; pip tries five times before it gives up.
LOOKED_AT = 12
_LONGEST = 160

#: What one of the last lines says -> what happened, and what to do. {builder} and {registry} are
#: filled in. The first that fits, so what is specific comes first.
_KNOWN: tuple[tuple[str, str, str], ...] = (
    (
        r"no space left on device|disk quota exceeded|ENOSPC",
        "the disk is full",
        "make room where {builder} keeps its images ({builder} system prune), or in TMPDIR",
    ),
    (
        r"cannot connect to the docker daemon|is the docker daemon running",
        "docker's daemon does not run, or you may not talk to it",
        "start it, or install podman or buildah, which need none",
    ),
    (
        r"buildx component is missing|buildkit is enabled but|the --mount option requires buildkit",
        "this docker has no BuildKit, which mounts what only the build may read",
        "install docker's buildx plugin, or take podman or buildah",
    ),
    (
        r"server gave http response to https client",
        "{registry} speaks plain HTTP",
        "where that is meant: podman and buildah take -- --tls-verify=false, docker wants it in "
        "its insecure-registries",
    ),
    (
        r"x509|certificate signed by unknown authority|certificate_verify_failed|certificate verify"
        r" failed",
        "a certificate is not trusted",
        "for packages give your own authority's with --ca-bundle; for a registry put it where "
        "{builder} looks (/etc/containers/certs.d, /etc/docker/certs.d)",
    ),
    (
        r"toomanyrequests|too many requests|rate limit",
        "{registry} has had too many requests from here",
        "log in ({builder} login), wait, or take the base image from a registry of your own",
    ),
    (
        r"unauthorized|authentication required|authorization failed|no basic auth credentials"
        r"|\b401\b|access to the resource is denied|denied:|\bdenied\b.*(policy|push|permission)"
        r"|insufficient_scope|\b403\b.*forbidden|requested access",
        "{registry} refuses",
        "log in ({builder} login REGISTRY); if you are, there is no such repository or its policy "
        "does not let you: on OCI, pushing takes `manage repos`, pulling `read repos`",
    ),
    (
        r"failed to establish a new connection|newconnectionerror|connection to .* timed out",
        "pip cannot reach its package index",
        "give where packages come from with --pip-config; the build may need -- --network=host",
    ),
    (
        r"no such host|name resolution|name or service not known|server misbehaving"
        r"|could not resolve",
        "a host name is not known here",
        "is it spelled right, and can this machine reach it? a proxy goes into HTTPS_PROXY",
    ),
    (
        r"docker://localhost/|https?://localhost/v2",
        "there is no such image here",
        "a name that begins with localhost/ is one that was built on this machine, with {builder}",
    ),
    (
        r"connection refused|i/o timeout|network is unreachable|no route to host|timed out"
        r"|connection reset|deadline exceeded|tls handshake timeout",
        "{registry} cannot be reached",
        "is the address right, its port included, and does a firewall or proxy stand between?",
    ),
    (
        r"manifest unknown|name unknown|repository .* not found|manifest for .* not found"
        r"|invalid reference.*not found|pull access denied|short-name",
        "there is no such base image",
        "see --base; write it in full, as in docker.io/library/python:3.12-slim",
    ),
    (
        r"image not known|no such image|tag does not exist|does not exist locally"
        r"|identifier is not an image|image is not known",
        "{builder} has no image of that name",
        "build it first, and push it with what built it (--builder)",
    ),
    (
        r"requires a different python|requires-python",
        "the base image's Python is too old for a package",
        "take a --base with Python 3.11 or newer",
    ),
    (
        r"no matching distribution found|could not find a version that satisfies",
        "a package is not to be had in that version",
        "is it spelled right, and is there one for this Python? for an index of your own, "
        "--pip-config",
    ),
    (
        r"failed building wheel|failed-wheel-build|legacy-install-failure|subprocess-exited-with",
        "a package has to be compiled, and could not be",
        "what it lacks stands further up; often a compiler (--apt g++) or Python's headers "
        "(--apt python3-dev, which the images of python have)",
    ),
    (
        r"no module named pip",
        "the base image has Python, but no pip",
        "take another --base, or add it: --apt python3-pip",
    ),
    (
        r"/bin/sh\W.*no such file",
        "the base image has no shell, so nothing can be installed into it",
        "take one with Python 3.11 or newer and pip, such as python:3.11-slim",
    ),
    (
        r"python3: (command )?not found|python3.*no such file",
        "the base image has no Python",
        "take one with Python 3.11 or newer and pip, or add them: --apt python3-pip",
    ),
    (
        r"apt-get: (command )?not found",
        "the base image is neither Debian nor Ubuntu, so apt-get cannot install into it",
        "take another --base, with those packages inside",
    ),
    (
        r"exec format error",
        "the base image is for another kind of processor",
        "name the platform: -- --platform linux/amd64",
    ),
    (
        r"rlimit|operation not permitted|newuidmap|cannot clone|unshare",
        "{builder} may not do here what it needs for a build",
        "inside a container try -- --isolation=chroot, or set BUILDAH_ISOLATION=chroot",
    ),
)


def plain_words(builder: str, registry: str, lines: Sequence[str]) -> tuple[str, str] | None:
    """What happened and what to do, and the line that says so; None if no line is known."""
    words = {"builder": builder, "registry": registry or "the registry"}
    for text, what, remedy in _KNOWN:
        pattern = re.compile(text, re.IGNORECASE)
        for line in reversed(lines):
            if pattern.search(line):
                return f"{what.format(**words)} ({remedy.format(**words)})", line.strip()
    return None


def failure(action: str, builder: str, registry: str, code: int, lines: Sequence[str]) -> str:
    """The message of a builder that ended with `code`, with the line of its own that says why."""
    last = [line for line in lines if line.strip()][-LOOKED_AT:]
    found = plain_words(builder, registry, last)
    if found is None:
        said = f": {_end(last[-1].strip())}" if last else ""
        return f"{action}: {builder} ended with {code}{said}"
    return f"{action}: {found[0]}; {builder} said: {_end(found[1])}"


def _end(line: str) -> str:
    """The reason is what builders say last."""
    return line if len(line) <= _LONGEST else f"...{line[-_LONGEST:]}"
