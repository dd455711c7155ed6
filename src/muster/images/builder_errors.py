"""What the errors of image builders mean, and what to do about them.

Only those that a user cannot tell from the builder's own line: the rest is shown as it is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

#: How many of the builder's last lines are searched. pip repeats its error up to five times.
LINES_SEARCHED = 12
_MAX_LENGTH = 160

#: Pattern in one of the last lines -> (what happened, what to do), with {builder} and {registry}
#: filled in. The first pattern that matches wins, so specific ones come first.
_KNOWN: tuple[tuple[str, str, str], ...] = (
    (
        r"no space left on device|disk quota exceeded|ENOSPC",
        "the disk is full",
        "free space where {builder} keeps its images ({builder} system prune), or in TMPDIR",
    ),
    (
        r"cannot connect to the docker daemon|is the docker daemon running",
        "the docker daemon is not running, or this user may not use it",
        "start it, or install podman or buildah, which need no daemon",
    ),
    (
        r"buildx component is missing|buildkit is enabled but|the --mount option requires buildkit",
        "this docker has no BuildKit, which build secrets need",
        "install docker's buildx plugin, or use podman or buildah",
    ),
    (
        r"server gave http response to https client",
        "{registry} speaks plain HTTP",
        "if that is intended: podman and buildah accept -- --tls-verify=false, docker needs the "
        "registry in its insecure-registries",
    ),
    (
        r"x509|certificate_verify_failed|certificate verify failed",
        "a certificate is not trusted",
        "for packages pass your authority's with --ca-bundle; for a registry put it where "
        "{builder} looks (/etc/containers/certs.d, /etc/docker/certs.d)",
    ),
    (
        r"toomanyrequests|too many requests|rate limit",
        "{registry} limits the rate of requests",
        "log in ({builder} login), wait, or use a base image from your own registry",
    ),
    (
        r"unauthorized|authentication required|no basic auth credentials|\b401\b|denied:"
        r"|insufficient_scope|requested access|access to the resource is denied"
        r"|\b403\b.*forbidden",
        "{registry} denies access",
        "log in ({builder} login REGISTRY); if you are, the repository does not exist or its "
        "policy does not allow it: on OCI, pushing needs `manage repos`, pulling `read repos`",
    ),
    (
        r"failed to establish a new connection|newconnectionerror|connection to .* timed out",
        "pip cannot reach its package index",
        "name another index with --pip-config; the build may need -- --network=host",
    ),
    (
        r"docker://localhost/|https?://localhost/v2|image not known|no such image"
        r"|tag does not exist",
        "{builder} has no image with this name",
        "build it first with the same --builder; names that start with localhost/ are local images",
    ),
    (
        r"no such host|name resolution|name or service not known|server misbehaving"
        r"|connection refused|i/o timeout|network is unreachable|no route to host|timed out"
        r"|connection reset|tls handshake timeout",
        "{registry} cannot be reached",
        "check the address and its port, the firewall, and HTTPS_PROXY if there is a proxy",
    ),
    (
        r"manifest unknown|name unknown|manifest for .* not found|pull access denied|short-name",
        "the base image does not exist",
        "check --base; write it in full, such as docker.io/library/python:3.12-slim",
    ),
    (
        r"requires a different python|requires-python",
        "the base image's Python is too old for a package",
        "use a --base with Python 3.11 or newer",
    ),
    (
        r"no matching distribution found|could not find a version that satisfies",
        "a package is not available in that version",
        "check its name and version, and that it supports this Python; for your own index use "
        "--pip-config",
    ),
    (
        r"failed building wheel|failed-wheel-build|legacy-install-failure|subprocess-exited-with",
        "a package could not be compiled",
        "see the lines above; often a compiler (--apt g++) or Python's headers "
        "(--apt python3-dev) are missing",
    ),
    (
        r"no module named pip|python3: (command )?not found|python3.*no such file"
        r"|apt-get: (command )?not found|/bin/sh\W.*no such file",
        "the base image lacks a shell, Python, pip or apt-get",
        "use one with Python 3.11 or newer and pip, such as python:3.11-slim",
    ),
    (
        r"exec format error",
        "the base image is for another processor architecture",
        "name the platform: -- --platform linux/amd64",
    ),
    (
        r"rlimit|operation not permitted|newuidmap|cannot clone|unshare",
        "{builder} lacks a permission that it needs to build",
        "inside a container try -- --isolation=chroot, or set BUILDAH_ISOLATION=chroot",
    ),
)


def explain_line(builder: str, registry: str, lines: Sequence[str]) -> tuple[str, str] | None:
    """What happened and what to do, and the line that shows it. None if no line is known."""
    names = {"builder": builder, "registry": registry or "the registry"}
    for text, what, remedy in _KNOWN:
        pattern = re.compile(text, re.IGNORECASE)
        for line in reversed(lines):
            if pattern.search(line):
                return f"{what.format(**names)} ({remedy.format(**names)})", line.strip()
    return None


def failure(action: str, builder: str, registry: str, code: int, lines: Sequence[str]) -> str:
    """The message for a builder that exited with `code`, with the line of its output that says
    why. lines: the end of its output."""
    last = [line for line in lines if line.strip()][-LINES_SEARCHED:]
    found = explain_line(builder, registry, last)
    if found is None:
        reason = f": {_shorten(last[-1].strip())}" if last else ""
        return f"{action}: {builder} exited with {code}{reason}"
    return f"{action}: {found[0]}; {builder} printed: {_shorten(found[1])}"


def _shorten(line: str) -> str:
    """Keep the end of a long line: builders put the reason last."""
    return line if len(line) <= _MAX_LENGTH else f"...{line[-_MAX_LENGTH:]}"
