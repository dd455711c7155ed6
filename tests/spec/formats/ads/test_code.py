"""Code of ADS YAML: folders, repositories, URLs, paths in an image, working directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.ads import (
    distributed,
    job,
    read,
    refusals,
)


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        ("/code/data/mnist.npz", "data/mnist.npz"),
        ("--data=/code/data", "--data=data"),
        ("/code", "."),
        ("/code/", "."),
        ("a:/code/b:/code", "a:b:."),
        ("/codes/x", "/codes/x"),
        ("/srv/code/x", "/srv/code/x"),
        ("./code/x", "./code/x"),
        ("oci://code/x", "oci://code/x"),
    ],
)
def test_paths_in_the_code_of_an_image(folder: Path, text: str, inside: str) -> None:
    env = [{"name": "A", "value": text}]
    runtime = {"args": [text], "env": env}
    spec, notes = read(folder, distributed(runtime_spec=runtime))
    assert (spec.args, spec.env["A"]) == ((inside,), inside)
    assert any("programs start where the code is" in note for note in notes) is (inside != text)


def test_another_code_folder(folder: Path) -> None:
    runtime = {"codeDir": "/srv/mine", "entryPoint": "/srv/mine/train.py", "args": ["/code/x"]}
    spec, _ = read(folder, distributed(runtime_spec=runtime))
    assert (spec.entrypoint, spec.args) == ("train.py", ("/code/x",))


def test_code_from_git_and_from_urls(folder: Path) -> None:
    runtime = {"uri": "https://host/owner/code.git", "branch": "main", "commit": "abcdef12"}
    spec, _ = read(folder, distributed(runtime={"type": "git"}, runtime_spec=runtime))
    assert spec.git is not None
    assert (spec.git.url, spec.git.branch, spec.git.commit) == tuple(runtime.values())
    assert spec.entrypoint == "train.py"
    for entry in ("train.py", "/code/train.py", "/code/sources/train.py", "sources/train.py"):
        given = {"uri": "s3://bucket/sources", "entryPoint": entry}
        spec, _ = read(folder, distributed(runtime={"type": "remote"}, runtime_spec=given))
        assert spec.command == ("python", "/mnt/code/train.py")
        code = spec.mounts[0]
        assert (code.source, code.destination) == ("s3://bucket/sources", "/mnt/code")


PROFILED = [{"name": "PROFILE", "value": 1}, {"name": "PROFILE_CMD", "value": "nsys profile -x"}]


def test_profiling(folder: Path) -> None:
    cluster = {"config": {"env": PROFILED}}
    spec, _ = read(folder, distributed(cluster=cluster, runtime_spec={"args": ["a"]}))
    assert spec.command == ("nsys", "profile", "-x", "python", "train.py")
    assert (spec.artifact, spec.entrypoint, spec.args) == (str(folder), None, ("a",))

    runtime = {"uri": "https://host/owner/code.git"}
    data = distributed(cluster=cluster, runtime={"type": "git"}, runtime_spec=runtime)
    spec, _ = read(folder, data)
    assert spec.command == ("nsys", "profile", "-x", "python", "train.py")
    assert spec.git is not None and spec.git.url == runtime["uri"]

    spec, _ = read(folder, distributed(cluster=cluster, runtime_spec={"uri": str(folder)}))
    assert spec.command == ("nsys", "profile", "-x", "python", "train.py")
    spec, _ = read(folder, distributed(cluster=cluster, runtime_spec={"uri": "s3://bucket/code"}))
    assert spec.command == ("nsys", "profile", "-x", "python", "/mnt/code/train.py")

    missing = distributed(cluster=cluster, runtime_spec={"entryPoint": "nowhere.py"})
    assert "not found" in refusals(folder, missing)["spec.runtime.spec.entryPoint"]


def test_the_folder_where_a_program_starts(folder: Path) -> None:
    code = folder / "code_dir"
    (code / "sub").mkdir(parents=True)
    (code / "sub" / "a.py").touch()
    given = {"scriptPathURI": "code_dir", "pythonPath": ["lib"]}
    for entry, where, started in [
        ("code_dir/sub/a.py", None, None),  # ADS starts the program next to the folder
        ("sub/a.py", "code_dir", None),
        ("a.py", "code_dir/sub", "sub"),
        ("a.py", "sub", "sub"),
        ("sub/a.py", ".", None),
    ]:
        spec, _ = read(folder, job("python", entrypoint=entry, workingDir=where, **given))
        group = spec.node_groups[0] if spec.node_groups else None
        assert spec.entrypoint == "sub/a.py", (entry, where)
        assert (group.working_dir if group else None) == started
        assert spec.env["PYTHONPATH"] == ".:lib", (
            "modules are found in the folder where the program starts"
        )
    data = job(
        "gitPython",
        url="https://h/o/r.git",
        entrypoint="models/main.py",
        workingDir="models",
    )
    spec, _ = read(folder, data)
    assert (spec.entrypoint, spec.node_groups[0].working_dir) == ("models/main.py", "models")
    data = job(
        "pyTorchDistributed", source=".", command="torchrun a.py", replicas=2, workingDir="m"
    )
    (group,) = read(folder, data)[0].node_groups
    assert (group.name, group.nodes, group.working_dir) == ("workers", 2, "m")


def test_a_script_from_a_url(folder: Path) -> None:
    spec, _ = read(folder, job("python", scriptPathURI="oci://b@n/p/a.py", args=["x"]))
    assert (spec.command, spec.args) == (("python", "/mnt/code/a.py"), ("x",))
    assert [(m.source, m.destination) for m in spec.mounts] == [("oci://b@n/p/a.py", "/mnt/code")]
    spec, _ = read(folder, job("script", scriptPathURI="oci://b@n/p", entrypoint="s/a.sh"))
    assert spec.command == ("bash", "/mnt/code/s/a.sh")
