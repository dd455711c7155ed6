"""Images built for real: a base image, a builder, a package index with a password, a registry.

Needs podman or buildah, docker-registry, packages that pip can download, and root or a user for
whom the builder works. A skipped test names what is missing.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from muster.images.packages import packages_of
from support.images import Index, builder_environment, index, make_root, registry

pytestmark = pytest.mark.slow

PASSWORD = "hunter2-is-in-no-layer"
BASE = "localhost/muster-base:1"
PROGRAM = """\
import os
from distributed import Client, LocalCluster
import extra
with LocalCluster(n_workers=1, processes=False, dashboard_address=None) as cluster:
    with Client(cluster) as client:
        print(os.environ["CLUSTER_TYPE"], client.submit(sum, [1, 2, 3]).result(), extra.WORD)
"""


class Bench(NamedTuple):
    """A builder that works, with a base image in its storage; `env` is its environment."""

    builder: str
    env: dict[str, str]
    folder: Path

    def call(self, *words: str, code: int | None = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            words,
            check=False,
            env={**os.environ, **self.env},
            capture_output=True,
            text=True,
            cwd=self.folder,
            timeout=900,
        )
        assert code is None or done.returncode == code, done.stdout + done.stderr
        return done

    def muster(self, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        return self.call(sys.executable, "-m", "muster", "image", *words, code=code)

    def run(self, image: str, *words: str, volume: str = "", **env: str) -> str:
        """The output of a container; without words, it runs the image's own command."""
        options = ["--volume", volume] if volume else []
        options += [word for name, value in env.items() for word in ("--env", f"{name}={value}")]
        if self.builder == "podman":
            command = ["podman", "run", "--rm", "--network=host", *options, image, *words]
            return self.call(*command).stdout
        name = self.call("buildah", "from", image).stdout.strip()
        started = words or inspected(self, image)["Cmd"]
        try:
            return self.call("buildah", "run", *options, name, "--", *started).stdout
        finally:
            self.call("buildah", "rm", name)


@pytest.fixture(scope="module", params=["podman", "buildah"])
def bench(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Bench]:
    builder: str = request.param
    if shutil.which(builder) is None:
        pytest.skip(f"{builder} is not on PATH (apt-get install {builder})")
    folder = tmp_path_factory.mktemp(builder)
    made = Bench(builder, builder_environment(folder), folder)
    make_root(folder / "root")
    (folder / "Base").write_text(
        "FROM scratch\nCOPY root/ /\nENV PATH=/usr/local/bin:/usr/bin:/bin\nRUN python3 --version\n"
    )
    done = made.call(builder, "build", "-t", BASE, "-f", "Base", ".", code=None)
    shutil.rmtree(folder / "root")
    if done.returncode != 0:
        pytest.skip(f"{builder} cannot build here: {done.stderr.strip().splitlines()[-1]}")
    yield made
    made.call(builder, "rmi", "--all", "--force")
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages that Dask and Muster need, as files."""
    folder = tmp_path_factory.mktemp("wheels")
    packages = packages_of("dask")
    assert packages is not None
    core = ["click", "cryptography", "fsspec", "google-re2", "msgspec", "PyYAML"]
    expected = [*packages.pip, *core, "iniconfig"]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--dest", str(folder)]
    done = subprocess.run(
        [*command, "--only-binary=:all:", *expected], check=False, capture_output=True, text=True
    )
    if done.returncode != 0:
        pytest.skip(f"pip cannot download: {done.stderr.strip().splitlines()[-1]}")
    return folder


@pytest.fixture(scope="module")
def packages(wheels: Path) -> Iterator[Index]:
    with index(wheels, "me", PASSWORD) as served:
        yield served


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with registry(tmp_path_factory.mktemp("registry")) as address:
        yield address


@pytest.fixture
def code(bench: Bench) -> Iterator[Path]:
    folder = bench.folder / "code"
    folder.mkdir()
    (folder / "train.py").write_text(PROGRAM)
    (folder / "extra.py").write_text("WORD = 'first'\n")
    (folder / "weights.bin").write_text("large")
    (folder / ".musterignore").write_text("*.bin\n")
    yield folder
    shutil.rmtree(folder)


def build(bench: Bench, address: Index, *words: str, code: int = 0) -> Any:
    """`muster image build` with the index of the tests."""
    config = bench.folder / "pip.conf"
    url = f"http://me:{PASSWORD}@{address.address}/simple"
    config.write_text(f"[global]\nindex-url = {url}\n")
    output = ["--base", BASE, "--pip-config", str(config), "--builder", bench.builder]
    return bench.muster("build", *output, *words, "--", "--network=host", code=code)


@pytest.mark.shows(
    "cluster-design/build-images",
    "cluster-design/build-locally",
    "cluster-design/publish-images",
    "cluster-design/push-image",
    "cluster-design/recipe-ports",
)
def test_code_becomes_an_image_that_is_pushed_pulled_and_run(
    bench: Bench, packages: Index, store: str, code: Path
) -> None:
    # given: an image, built with the code's requirements
    (bench.folder / "requirements.txt").write_text("iniconfig\n")
    name = f"{store}/team/train-{bench.builder}:1"
    expected = [
        *("--framework", "dask", "--source", "code", "--entrypoint", "train.py"),
        *("--requirements", "requirements.txt", "--tag", name),
    ]
    made = json.loads(build(bench, packages, *expected, "--json").stdout)
    assert made["image"] == name
    assert made["builder"] == bench.builder

    # then: it starts the node program, or any other
    config = inspected(bench, name)
    assert config["Cmd"] == ["muster", "node"]
    assert not config.get("Entrypoint")
    assert {"CLUSTER_TYPE=DASK", "ENTRY_POINT=/code/train.py"} <= set(config["Env"])
    exposed = {"3000-3100/tcp", "8700-8800/tcp", "8786/tcp", "8787/tcp"}
    assert set(config["ExposedPorts"]) == exposed
    assert bench.run(name, "python3", "train.py") == "DASK 6 first\n"
    assert bench.run(name, "muster", "--version").startswith("muster")
    assert sorted(bench.run(name, "ls", "/code").split()) == ["extra.py", "train.py"]

    # when: the code changes
    before = len(packages.served)
    (code / "extra.py").write_text("WORD = 'second'\n")
    assert build(bench, packages, *expected).stdout == f"built {name} with {bench.builder}\n"
    # then: no package of the framework or of the code is fetched again
    again = " ".join(packages.served[before:])
    assert not any(name in again for name in ("dask", "bokeh", "iniconfig"))

    # when: the image is pushed to the registry, and pulled from it
    pushed = bench.muster(
        "push", name, "--json", "--builder", bench.builder, "--", "--tls-verify=false"
    )
    digest = json.loads(pushed.stdout)["digest"]
    bench.call(bench.builder, "rmi", "--force", name)
    pinned = f"{name.rpartition(':')[0]}@{digest}"
    bench.call(bench.builder, "pull", "--tls-verify=false", pinned)
    # then
    assert bench.run(pinned, "python3", "train.py") == "DASK 6 second\n"


#: Stands in for micromamba where no channel of conda is reachable: installs the packages of the
#: file given to `create` with pip, without their dependencies.
STAND_IN = """\
#!/usr/local/bin/python3
import os, subprocess, sys, venv

if sys.argv[1] == "create":
    words = dict(zip(sys.argv, sys.argv[1:]))
    prefix, lines = words["--prefix"], open(words["--file"]).read().splitlines()
    assert lines[:3] == ["channels:", "- conda-forge", "dependencies:"], lines
    names = [line.strip(" -").rpartition("::")[2] for line in lines[3:] if "pip:" not in line]
    assert "python=3.11" in names and "pip" in names, names
    venv.create(prefix, system_site_packages=True)
    python = os.path.join(prefix, "bin", "python3")
    pip = [sys.executable, "-m", "pip", "--python", python, "install"]
    alone = [name for name in names if name not in ("python=3.11", "pip", "dask")]
    subprocess.run([*pip, "dask[distributed]"], check=True)
    subprocess.run([*pip, "--no-deps", *alone], check=True)
"""
#: The environment files of the design, unchanged.
DESIGN = {
    "env.yaml": "channels:\n- conda-forge\n- nodefaults\ndependencies:\n- conda-forge::dask\n"
    "- conda-forge::python=3.8\n- conda-forge::pip\n- pip:\n- oracle-ads\n- supervisor\n",
    "lightgbm.yaml": "channels:\n  - conda-forge\n  - nodefaults\n"
    "dependencies:\n  - conda-forge::lightgbm\n",
}


@pytest.mark.shows("cluster-design/additional-dependencies", "cluster-design/base-environment")
def test_the_environment_files_of_the_design_are_installed(
    bench: Bench, packages: Index, wheels: Path, code: Path
) -> None:
    more = ["oracle-ads", "supervisor", "lightgbm"]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest"]
    if subprocess.run([*command, str(wheels), *more], check=False).returncode != 0:
        pytest.skip("pip cannot download the packages of the design")
    for name, text in DESIGN.items():
        (bench.folder / name).write_text(text)
    (bench.folder / "micromamba").write_text(STAND_IN)
    (bench.folder / "micromamba").chmod(0o755)
    (bench.folder / "Tool").write_text(f"FROM {BASE}\nCOPY micromamba /bin/micromamba\n")
    tool = "localhost/micromamba:1"
    bench.call(bench.builder, "build", "-t", tool, "-f", "Tool", ".")

    name = f"localhost/design-{bench.builder}:1"
    expected = [
        "--framework",
        "dask",
        "--source",
        "code",
        "--entrypoint",
        "train.py",
        "--tag",
        name,
    ]
    files = [word for file in DESIGN for word in ("--env", file)]
    output = build(bench, packages, *expected, *files, "--micromamba", tool).stderr

    assert "note: env.yaml: dependencies[1] requires Python 3.8" in output
    script = "import importlib.metadata as m, sys; print(sys.prefix, *map(m.version, sys.argv[1:]))"
    found = bench.run(name, "python3", "-c", script, *more).split()
    assert (found[0], len(found)) == ("/opt/env", 4)
    assert bench.run(name, "python3", "train.py") == "DASK 6 first\n"
    assert bench.run(name, "muster", "--version").startswith("muster")


def inspected(bench: Bench, name: str) -> dict[str, Any]:
    """The image's configuration, in the form of the OCI image specification."""
    kind = ["--type", "image"] if bench.builder == "buildah" else []
    data = json.loads(bench.call(bench.builder, "inspect", *kind, name).stdout)
    config: dict[str, Any] = (
        data[0]["Config"] if isinstance(data, list) else data["OCIv1"]["config"]
    )
    return config


CLIENT = """\
from distributed import Client
with Client() as client:
    workers = client.scheduler_info()["workers"].values()
    print(len(workers), sum(client.gather(client.map(lambda x: x * x, range(10)))))
"""


@pytest.mark.shows(
    "cluster-design/example-cluster-type",
    "cluster-design/recipe-entrypoint",
    "cluster-design/run-entry-point",
)
def test_containers_without_a_command_become_a_cluster(
    bench: Bench, packages: Index, code: Path
) -> None:
    # given: an image with a program that is Dask's client
    (code / "train.py").write_text(CLIENT)
    name = f"localhost/cluster-{bench.builder}:1"
    expected = [
        "--framework",
        "dask",
        "--source",
        "code",
        "--entrypoint",
        "train.py",
        "--tag",
        name,
    ]
    build(bench, packages, *expected)
    work = bench.folder / "work"
    work.mkdir()
    values = {"WORK_DIR": "/work", "JOB_OCID": "images", "WORKER_COUNT": "1", "TIMEOUT": "300"}

    # when: two containers are started over one folder
    def start(mode: str) -> str:
        return bench.run(name, volume=f"{work}:/work", MODE=mode, **values)

    with ThreadPoolExecutor() as pool:
        worker, main = pool.submit(start, "WORKER"), pool.submit(start, "MAIN")
        # then: they form a cluster, compute, and both end
        assert main.result() == "1 285\n"
        worker.result()


def test_the_password_is_in_no_layer(bench: Bench, packages: Index) -> None:
    # given: an image with only the packages that pip installed with the password
    name = f"localhost/secret-{bench.builder}:1"
    output = build(bench, packages, "--framework", "generic", "--tag", name)
    assert PASSWORD not in output.stdout + output.stderr
    # when: the whole image is saved
    archive = bench.folder / "image.tar"
    if bench.builder == "podman":
        bench.call("podman", "save", "--output", str(archive), name)
    else:
        bench.call("buildah", "push", name, f"docker-archive:{archive}")
    # then: the password is not in its layers, configuration or history
    assert b"muster_jobs-" in archive.read_bytes()
    assert PASSWORD.encode() not in archive.read_bytes()
    with tarfile.open(archive) as saved:
        assert any(member.name.endswith(".tar") for member in saved), "layers are not compressed"
    archive.unlink()


def test_errors_of_a_build_are_explained(bench: Bench, packages: Index, store: str) -> None:
    (bench.folder / "wrong.txt").write_text("no-such-package-of-ours\n")
    tag = ["--framework", "generic", "--tag", "localhost/wrong:1"]
    output = build(bench, packages, *tag, "--requirements", "wrong.txt", code=4).stderr
    assert "error: cannot build localhost/wrong:1: a package is not available" in output
    assert output.splitlines()[-1].endswith(
        "No matching distribution found for no-such-package-of-ours"
    )
    for base, meaning in (
        (f"{store}/team/none:1", "the base image does not exist"),
        ("127.0.0.1:1/team/none:1", "127.0.0.1:1 cannot be reached"),
    ):
        words = ["--base", base, "--builder", bench.builder]
        output = bench.muster("build", *tag, *words, "--", "--tls-verify=false", code=4).stderr
        assert meaning in output.splitlines()[-1]


@pytest.mark.shows("cluster-design/publish-images")
def test_errors_of_a_push_are_explained(
    bench: Bench, packages: Index, store: str, tmp_path: Path
) -> None:
    with registry(tmp_path, closed=True) as closed:
        cases = (
            (store, [], f"{store} speaks plain HTTP"),
            (closed, ["--tls-verify=false"], f"{closed} refuses (log in"),
            ("127.0.0.1:1", ["--tls-verify=false"], "127.0.0.1:1 cannot be reached"),
        )
        for address, options, meaning in cases:
            name = f"{address}/team/push:1"
            bench.call(bench.builder, "tag", BASE, name)
            words = ["push", name, "--builder", bench.builder, "--quiet", "--", *options]
            output = bench.muster(*words, code=4).stderr.splitlines()
            assert output[-1].startswith(f"error: cannot push {name}: {meaning}")
            assert len(output) > 1, "the builder's output comes first"
        output = bench.muster(
            "push", f"{store}/team/none:1", "--builder", bench.builder, code=4
        ).stderr.splitlines()
        assert f"{bench.builder} has no image of that name" in output[-1]
