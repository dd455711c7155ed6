"""Commands of guides whose readers have files, or a run, of their own: the tests provide them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from textwrap import dedent
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
import yaml

from support.pages import ROOT, install_wheel, read_page, type_commands

TRAIN = "print('epoch 1/1')\n"
CELL = """{"cells": [{"cell_type": "code", "execution_count": null, "id": "a", "metadata": {},
"outputs": [], "source": "print('cell')"}], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}"""
#: A program that runs until it is canceled, and a run of it whose nodes have all printed a line.
LONG = """
import os, time
from pathlib import Path
Path(os.environ["MUSTER_OUTPUTS"], "log").write_text("step 1")
print("loss=nan", flush=True)
time.sleep(600)
"""
IN_PROGRESS = """python - <<'END'
import muster
run = muster.run("train.py", nodes=4)
ready = set()
for record in run.logs(follow=True, streams=["stdout"]):
    ready.add(record.rank)
    if len(ready) == 4:
        break
END"""
REPOSITORY = """
git init -qb main REPO
mkdir REPO/FOLDER REPO/notebooks
cp train.py REPO; cp train.py REPO/FOLDER; cp explore.ipynb REPO/notebooks
git -C REPO add .
git -C REPO -c user.name=test -c user.email=test@localhost commit -qm code
git -C REPO branch BRANCH; git -C REPO tag v1"""


class Given(NamedTuple):
    """What readers of a page have before they type its commands."""

    files: dict[str, str]
    before: str = ""  # a command
    words: Mapping[str, str] = MappingProxyType({})  # in place of words of the page


def example(name: str) -> str:
    return (ROOT / "examples" / name).read_text()


GIVEN = {
    "inside": Given(
        {"train.py": LONG},
        IN_PROGRESS,
        {"--follow": ""} | ({} if shutil.which("py-spy") else {"muster stacks last": "true"}),
    ),
    "move": Given(
        {
            "train.py": TRAIN,
            "job.sh": "echo $RANK",
            "jobset.yaml": example("jobset/jobset.yaml"),
        },
        words={"muster run train.yaml": f"muster run {ROOT}/examples/ads/train.yaml"},
    ),
    "code": Given(
        {
            "train.py": TRAIN,
            "solver": "#!/bin/sh\ncat $1\n",
            "input.dat": "input",
            "explore.ipynb": CELL,
            "requirements.txt": "numpy>=2\n",
        },
        f"chmod +x solver{REPOSITORY}",
        {"https://HOST/OWNER/REPO.git": "file://$PWD/REPO", "/home/me/project": "$PWD/REPO"},
    ),
    "clusters": Given({}),
    "schedules": Given(
        {
            "train.py": TRAIN,
            "job.yaml": "name: train\nartifact: train.py\n",
            **dict.fromkeys(("score.py", "report.py", "build.py", "ingest.py"), "print(1)\n"),
        },
        # only clients of a server create buckets
        words={"muster schedules create ingest": "! muster schedules create ingest"},
    ),
    "notifications": Given(
        {}, words={"muster notify test failures": "! muster notify test failures"}
    ),
    "simulate": Given({"train.py": TRAIN, "job.yaml": "artifact: train.py\nnodes: 4\n"}),
}
SLOW = ("move", "code", "clusters", "simulate")
needs_frameworks = pytest.mark.skipif(
    any(find_spec(name) is None for name in ("torch", "sklearn", "distributed", "nbclient")),
    reason="PyTorch, scikit-learn, Dask or nbclient is not installed",
)


def test_every_guide_is_typed() -> None:
    guides = {path.stem for path in (ROOT / "docs/guides").glob("*.md")}
    # test_readme.py; test_guide.py of the engines and of the server
    elsewhere = {"arrays", "pytorch", "recover", "hosts", "containers", "slurm", "oci", "users"}
    elsewhere.add("kubernetes")
    # what clients of OCI do, as the tests of the server's OCI API do
    clients = {"from-ads", "from-oci", "object-storage", "oci-clients", "oci-services"}
    # a registry and a container builder, which a test does not have
    untyped = {"bootstrap", "images"} | clients
    assert guides - elsewhere - untyped == {*GIVEN, "ci", "notebooks"}


@needs_frameworks
@pytest.mark.usefixtures("client")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in GIVEN]
)
def test_commands_of_a_guide_print_what_it_shows(name: str, tmp_path: Path) -> None:
    page, given = read_page(f"docs/guides/{name}.md"), GIVEN[name]
    folder, results = tmp_path / "own", tmp_path / "results"
    folder.mkdir()
    results.mkdir()
    for file, text in given.files.items():
        (folder / file).write_text(text)
    commands = page.commands
    for word, other in given.words.items():
        assert any(word in command.text for command in commands)
        commands = [
            command._replace(text=command.text.replace(word, other)) for command in commands
        ]
    assert len(commands) > 0
    type_commands(page, commands, folder, results, given.before)


def scripts(value: Any) -> list[str]:
    """The shell commands of a pipeline, in order."""
    if isinstance(value, list):
        return [command for item in value for command in scripts(item)]
    if not isinstance(value, dict):
        return []
    found: list[str] = []
    for key, inner in value.items():
        if key in ("run", "script", "after-script"):
            found += [inner] if isinstance(inner, str) else inner
        else:
            found += scripts(inner)
    return found


def pipelines() -> dict[str, str]:
    """The files of the page about CI, by name."""
    text = (ROOT / "docs/guides/ci.md").read_text()
    found = re.findall(r' {4}```yaml title="([^"]*)"\n(.*?) {4}```', text, re.DOTALL)
    return {name: dedent(content) for name, content in found}


@pytest.mark.usefixtures("client")
@pytest.mark.parametrize("name", [".github/workflows/distributed.yml", "bitbucket-pipelines.yml"])
def test_the_steps_of_a_pipeline_pass(name: str, tmp_path: Path, own_home: Path) -> None:
    commands = scripts(yaml.safe_load(pipelines()[name]))
    assert sum("muster " in command for command in commands) >= 2
    (tmp_path / "train.py").write_text(
        "import os\nfrom pathlib import Path\nPath(os.environ['MUSTER_OUTPUTS'], 'x').touch()\n"
    )
    (tmp_path / "job.yaml").write_text("artifact: train.py\nnodes: 4\n")
    programs = install_wheel(tmp_path / "venv")
    typed = [command for command in commands if not command.startswith("pip ")]
    done = subprocess.run(
        ["bash", "-ec", "\n".join(typed)],
        cwd=tmp_path,
        env=os.environ
        | {"PATH": f"{programs}:{os.environ['PATH']}", "BITBUCKET_CLONE_DIR": str(own_home)},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in tmp_path.glob("results/rank-*")) == ["rank-0", "rank-1"]


@pytest.mark.slow
@needs_frameworks
@pytest.mark.usefixtures("client")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_page_about_notebooks_is_a_notebook(tmp_path: Path) -> None:
    """Its Python and its commands are cells of one kernel."""
    nbformat = pytest.importorskip("nbformat")
    client = pytest.importorskip("nbclient").NotebookClient
    (tmp_path / "train.py").write_text(TRAIN)
    sources = []
    for command in read_page("docs/guides/notebooks.md").commands:
        if found := re.fullmatch(r"python - <<'END'\n(.*)\nEND", command.text, re.DOTALL):
            sources.append(found[1])
        else:
            sources.append(
                f"import subprocess; subprocess.run({command.text!r}, shell=True, check=True)"
            )
    book = nbformat.v4.new_notebook(cells=[*map(nbformat.v4.new_code_cell, sources)])
    client(book, timeout=300, resources={"metadata": {"path": tmp_path}}).execute()
    results = [
        output["data"]["text/plain"]
        for cell in book.cells
        for output in cell.outputs
        if output.output_type == "execute_result"
    ]
    assert any("SUCCEEDED" in text for text in results)
