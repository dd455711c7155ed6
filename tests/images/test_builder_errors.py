"""Output of builders, and its explanations."""

from __future__ import annotations

import pytest

from muster.images.builder_errors import explain_line, failure

#: Lines of podman 4.3, buildah 1.28, docker 28 and pip 23, as they were printed.
OUTPUT = [
    ("write /var/tmp/storage1/layer: no space left on device", "the disk is full"),
    ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device",
     "the disk is full"),
    ("Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon "
     "running?", "the docker daemon is not running"),
    ("ERROR: BuildKit is enabled but the buildx component is missing or broken.",
     "this docker has no BuildKit"),
    ('Error: pinging container registry reg:5000: Get "https://reg:5000/v2/": http: server gave '
     "HTTP response to HTTPS client", "reg:5000 speaks plain HTTP"),
    ("tls: failed to verify certificate: x509: certificate signed by unknown authority",
     "a certificate is not trusted"),
    ("toomanyrequests: You have reached your unauthenticated pull rate limit.",
     "reg:5000 limits the rate of requests"),
    ("denied: requested access to the resource is denied", "reg:5000 denies access"),
    ("Error: writing blob: initiating layer upload to /v2/t/blobs/uploads/ in reg:5000: "
     "authentication required", "reg:5000 denies access"),
    ("unauthorized: authentication required", "reg:5000 denies access"),
    ("dial tcp: lookup nosuch.invalid: no such host", "reg:5000 cannot be reached"),
    ("dial tcp 127.0.0.1:5056: connect: connection refused", "reg:5000 cannot be reached"),
    ("dial tcp 10.0.0.1:443: i/o timeout", "reg:5000 cannot be reached"),
    ("manifest unknown: manifest unknown", "the base image does not exist"),
    ("Error: localhost/a:1: image not known", "podman has no image with this name"),
    ("Failed to establish a new connection: [Errno 111] Connection refused",
     "pip cannot reach its package index"),
    ("Failed to establish a new connection: [Errno -2] Name or service not known",
     "pip cannot reach its package index"),
    ("ERROR: No matching distribution found for dsak", "a package is not available"),
    ("ERROR: Package 'muster-jobs' requires a different Python: 3.9.2 not in '>=3.11'",
     "the base image's Python is too old"),
    ("error: legacy-install-failure", "a package could not be compiled"),
    ("ERROR: Failed building wheel for horovod", "a package could not be compiled"),
    ("/usr/bin/python3: No module named pip", "the base image lacks a shell, Python, pip"),
    ("/bin/sh: 1: python3: not found", "the base image lacks a shell, Python, pip"),
    ('runc create failed: exec: "/bin/sh": stat /bin/sh: no such file or directory',
     "the base image lacks a shell, Python, pip"),
    ('initializing source docker://localhost/none:1: pinging container registry localhost: Get '
     '"https://localhost/v2/": dial tcp 127.0.0.1:443: connect: connection refused',
     "podman has no image with this name"),
    ("/bin/sh: apt-get: not found", "the base image lacks a shell, Python, pip"),
    ("exec container process `/bin/sh`: Exec format error", "another processor architecture"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "meaning"), OUTPUT)
def test_known_lines_are_explained(line: str, meaning: str) -> None:
    found = explain_line("podman", "reg:5000", ["STEP 3/9: RUN x", line, ""])
    assert found is not None
    assert meaning in found[0]
    assert found[1] == line


def test_every_explanation_is_complete() -> None:
    for line, _ in OUTPUT:
        found = explain_line("podman", "", [line])
        assert found is not None
        assert "{" not in found[0]
        assert found[0].endswith(")")


def test_an_unknown_line_is_shown_unchanged() -> None:
    message = failure("cannot build a:1", "podman", "", 125, ["before", "internal failure", ""])
    assert message == "cannot build a:1: podman exited with 125: internal failure"
    assert (
        failure("cannot build a:1", "podman", "", 1, []) == "cannot build a:1: podman exited with 1"
    )


def test_only_the_last_lines_are_searched() -> None:
    old = ["no space left on device", *[f"line {number}" for number in range(30)]]
    assert failure("x", "podman", "", 1, old) == "x: podman exited with 1: line 29"


def test_long_lines_keep_their_end() -> None:
    message = failure("x", "podman", "", 1, ["a" * 500 + ": connection refused"])
    assert message.endswith("a: connection refused")
    assert len(message) < 400
