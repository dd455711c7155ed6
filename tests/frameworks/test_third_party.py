"""The framework that docs/frameworks/README.md shows, installed as a package would be."""

from __future__ import annotations

import importlib
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.client.client import Client
from muster.client.run import JobRun
from muster.errors import InvalidInput
from muster.frameworks.registry import framework_names, get_framework
from muster.spec.reader import spec_from_mapping

PAGE = Path(__file__).parents[2] / "docs" / "frameworks" / "README.md"


def block(language: str, beginning: str = "") -> str:
    """The first block of code of the page that begins so."""
    found = re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return next(text for text in found if text.startswith(beginning))


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    site = tmp_path / "site"
    project = tomllib.loads(block("toml"))["project"]
    package = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    entries = "".join(
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in listed.items())
        for group, listed in project["entry-points"].items()
    )
    (package / "entry_points.txt").write_text(entries)
    (site / "shelf.py").write_text(block("python", '"""`framework: shelf`'))
    monkeypatch.syspath_prepend(str(site))
    importlib.invalidate_caches()
    yield
    sys.modules.pop("shelf", None)


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "read.py").write_text(block("python", "import os"))
    (folder / "words.txt").write_text("one two three")
    return folder


def start(client: Client, code: Path, program: str = "read.py", **more: object) -> JobRun:
    fields = {"name": "words", "artifact": str(code), "entrypoint": program, "framework": "shelf"}
    job, new = client.service.draft_job(spec_from_mapping({**fields, **more}))
    return client.start(client.draft(job, new_job=new))


@pytest.mark.shows("distributed-jobs/framework-custom")
@pytest.mark.usefixtures("shelf")
def test_its_main_node_serves_and_the_others_read(client: Client, code: Path) -> None:
    run = start(client, code, nodes=3).wait(120)
    assert run.state == "SUCCEEDED", run.details
    said = {record.message for record in run.logs(streams=["stdout"])}
    assert said == {"node 1 has read 3 words", "node 2 has read 3 words"}
    assert [node.group for node in run.nodes] == ["main", "workers", "workers"]


@pytest.mark.usefixtures("shelf")
def test_a_reader_that_is_killed_is_replaced_alone(client: Client, code: Path) -> None:
    (code / "once.py").write_text(
        "import os, signal\n"
        "if os.environ['NODE_RANK'] + os.environ['MUSTER_RESTART'] == '20':\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "import read\n"
    )
    run = start(client, code, "once.py", nodes=3, failure={"max_restarts": 1}).wait(120)
    assert run.state == "SUCCEEDED", run.details
    (restart,) = [event.data for event in run.events() if event.kind == "restart"]
    assert restart["what"] == "node-2"


@pytest.mark.usefixtures("shelf")
def test_it_is_a_framework_like_any_other() -> None:
    assert "shelf" in framework_names()
    assert [need.ports for need in get_framework("shelf").needs] == ["8000"]


@pytest.mark.usefixtures("shelf")
@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"nodes": 1}, r"nobody would read \(say 2 or more\)"),
        ({"nodes": 2, "framework_options": {"pth": "x"}}, 'pth: unknown field .*"path"'),
        ({"nodes": 2, "env": {"SHELF_PORT": "x"}}, "'x' is not a port"),
    ],
)
def test_what_cannot_work_is_refused(
    client: Client, code: Path, more: dict[str, object], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        start(client, code, **more)
    assert client.runs() == []
