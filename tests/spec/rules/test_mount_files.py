"""Rules for mounts with given files, for parts of mounts, and for secrets."""

from __future__ import annotations

from typing import Any

import pytest

from muster.errors import InvalidInput
from muster.spec.models import JobSpec, MountFile
from muster.spec.override_models import RunOverrides
from muster.spec.reader import spec_from_mapping
from muster.spec.resolve import resolve


def spec_of(mount: Any, **more: Any) -> JobSpec:
    return spec_from_mapping({"name": "j", "command": ["true"], "mounts": [mount], **more})


def wrong(mount: Any, **more: Any) -> list[str]:
    with pytest.raises(InvalidInput) as caught:
        resolve(spec_of(mount, **more), RunOverrides())
    return [str(problem) for problem in caught.value.problems]


def test_short_and_long_forms() -> None:
    files = {"a.conf": "text", "port": 80, "b": {"base64": "AA==", "mode": "400"}}
    (mount,) = spec_of({"path": "/etc/app", "files": files}).mounts
    assert mount.files == {
        "a.conf": MountFile(text="text"),
        "port": MountFile(text="80"),
        "b": MountFile(base64="AA==", mode="0400"),
    }
    assert mount.destination == "/etc/app"


def test_a_part_is_mounted_below_its_name() -> None:
    mount = {"files": {"a/x.conf": "1"}, "sub_path": "a/x.conf"}
    assert spec_of(mount).mounts[0].destination == "/mnt/x.conf"


FILES = {"a": "x"}
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "neither": ({"path": "/a"}, "mounts[0]: has neither source nor files (give exactly one"),
    "both": ({"source": "/d", "files": FILES}, "mounts[0]: has source and files (give exactly"),
    "no path": ({"files": FILES}, "mounts[0]: the files a have no name for a mount point"),
    "leads out": ({"path": "/a", "files": {"../x": ""}}, "'../x' is not a path below the mount"),
    "absolute": ({"path": "/a", "files": {"/x": ""}}, "'/x' is not a path below the mount"),
    "file and folder": ({"path": "/a", "files": {"a": "", "a/b": ""}}, "a is a file (rename one"),
    "no content": ({"path": "/a", "files": {"a": {"mode": "0644"}}}, "needs exactly one of text"),
    "two contents": (
        {"path": "/a", "files": {"a": {"text": "x", "base64": "AA=="}}},
        "needs exactly one of text and base64",
    ),
    "not base64": ({"path": "/a", "files": {"a": {"base64": "?"}}}, "a.base64: is not base64"),
    "a mode as a number": (
        {"path": "/a", "files": {"a": {"text": "", "mode": 420}}},
        '420 is not a mode in octal digits (write "0644", with the quotes)',
    ),
    "too large": (
        {"path": "/a", "files": {"a": "x" * (1 << 20), "b": "y"}},
        "1,048,577 bytes in the files of a mount, 1,048,576 are allowed (mount a directory)",
    ),
    "an unknown placeholder": (
        {"path": "/a", "files": {"a": "${rnak}"}},
        'no placeholder named ${rnak} (did you mean "rank"?',
    ),
    "a secret in a path": (
        {"path": "/a", "files": FILES, "sub_path": "${secret.x}"},
        "${secret.x} cannot be in the path of a mount",
    ),
    "no such part": (
        {"path": "/a", "files": FILES, "sub_path": "b"},
        "sub_path: 'b' is none of the files",
    ),
    "a part that leads out": (
        {"source": "/tmp", "sub_path": "../x"},
        "../x is not a path below the mount (write it without .. and without / at its ends)",
    ),
    "a part that changes": (
        {"source": "/tmp", "sub_path": "${attempt}"},
        "${attempt} cannot be in the path of a mount",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said_once(case: str) -> None:
    mount, expected = WRONG[case]
    found = wrong(mount)
    assert len(found) == 1
    assert expected in found[0]


def test_all_files_of_a_node_have_a_limit_too() -> None:
    large = [{"path": f"/m{n}", "files": {"a": "x" * 900_000}} for n in range(3)]
    spec = spec_from_mapping({"name": "j", "command": ["true"], "mounts": large})
    with pytest.raises(InvalidInput, match="2,700,000 bytes in the files of all mounts"):
        resolve(spec, RunOverrides())


@pytest.mark.parametrize("value", [["s3cr3t"], {"a": "s3cr3t"}])
def test_a_secret_that_is_no_text_is_not_shown(value: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        spec_of({"path": "/a", "files": FILES}, secrets={"x": value})
    assert [str(problem) for problem in caught.value.problems] == ["secrets.x: must be text"]


@pytest.mark.parametrize(
    ("aliases", "expected"),
    [
        ({"10.0.0": ["a"]}, "'10.0.0' is not an IP address (write 10.1.2.3 or fd00::1)"),
        ({"10.0.0.1": ["A_b"]}, "'A_b' is not a valid host name"),
    ],
)
def test_host_aliases(aliases: Any, expected: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        spec_from_mapping({"name": "j", "command": ["true"], "host_aliases": aliases})
    (problem,) = caught.value.problems
    assert expected in str(problem)
