"""What builders say, as they say it, and what becomes of that."""

from __future__ import annotations

import pytest

from muster.images.trouble import failure, plain_words

#: Lines of podman 4.3, buildah 1.28, docker 28 and pip 23, as they were printed.
SAID = [
    ("write /var/tmp/storage1/layer: no space left on device", "the disk is full"),
    ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device",
     "the disk is full"),
    ("Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon "
     "running?", "docker's daemon does not run"),
    ("ERROR: BuildKit is enabled but the buildx component is missing or broken.",
     "this docker has no BuildKit"),
    ('Error: pinging container registry reg:5000: Get "https://reg:5000/v2/": http: server gave '
     "HTTP response to HTTPS client", "reg:5000 speaks plain HTTP"),
    ("tls: failed to verify certificate: x509: certificate signed by unknown authority",
     "a certificate is not trusted"),
    ("toomanyrequests: You have reached your unauthenticated pull rate limit.",
     "reg:5000 has had too many requests"),
    ("denied: requested access to the resource is denied", "reg:5000 refuses"),
    ("Error: writing blob: initiating layer upload to /v2/t/blobs/uploads/ in reg:5000: "
     "authentication required", "reg:5000 refuses"),
    ("unauthorized: authentication required", "reg:5000 refuses"),
    ("dial tcp: lookup nosuch.invalid: no such host", "a host name is not known here"),
    ("dial tcp 127.0.0.1:5056: connect: connection refused", "reg:5000 cannot be reached"),
    ("dial tcp 10.0.0.1:443: i/o timeout", "reg:5000 cannot be reached"),
    ("manifest unknown: manifest unknown", "there is no such base image"),
    ("Error: localhost/a:1: image not known", "podman has no image of that name"),
    ("Failed to establish a new connection: [Errno 111] Connection refused",
     "pip cannot reach its package index"),
    ("Failed to establish a new connection: [Errno -2] Name or service not known",
     "pip cannot reach its package index"),
    ("ERROR: No matching distribution found for dsak", "a package is not to be had"),
    ("ERROR: Package 'muster-jobs' requires a different Python: 3.9.2 not in '>=3.11'",
     "the base image's Python is too old"),
    ("error: legacy-install-failure", "a package has to be compiled, and could not be"),
    ("ERROR: Failed building wheel for horovod", "a package has to be compiled"),
    ("/usr/bin/python3: No module named pip", "the base image has Python, but no pip"),
    ("/bin/sh: 1: python3: not found", "the base image has no Python"),
    ('runc create failed: exec: "/bin/sh": stat /bin/sh: no such file or directory',
     "the base image has no shell"),
    ('initializing source docker://localhost/none:1: pinging container registry localhost: Get '
     '"https://localhost/v2/": dial tcp 127.0.0.1:443: connect: connection refused',
     "there is no such image here"),
    ("/bin/sh: apt-get: not found", "the base image is neither Debian nor Ubuntu"),
    ("exec container process `/bin/sh`: Exec format error", "another kind of processor"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "meaning"), SAID)
def test_what_builders_say(line: str, meaning: str) -> None:
    found = plain_words("podman", "reg:5000", ["STEP 3/9: RUN x", line, ""])
    assert found is not None
    assert meaning in found[0]
    assert found[1] == line


def test_every_way_out_can_be_filled_in() -> None:
    for line, _ in SAID:
        found = plain_words("podman", "", [line])
        assert found is not None
        assert "{" not in found[0]
        assert found[0].endswith(")")


def test_what_is_not_known_is_shown_as_it_is() -> None:
    said = failure("cannot build a:1", "podman", "", 125, ["before", "it fell over", ""])
    assert said == "cannot build a:1: podman ended with 125: it fell over"
    assert (
        failure("cannot build a:1", "podman", "", 1, []) == "cannot build a:1: podman ended with 1"
    )


def test_only_the_last_lines_count() -> None:
    old = ["no space left on device", *[f"line {number}" for number in range(30)]]
    assert failure("x", "podman", "", 1, old) == "x: podman ended with 1: line 29"


def test_long_lines_are_cut_where_they_say_least() -> None:
    said = failure("x", "podman", "", 1, ["a" * 500 + ": connection refused"])
    assert said.endswith("a: connection refused")
    assert len(said) < 400
