"""The example of a framework in docs/frameworks/README.md, installed like a package."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.client.client import Client
from muster.client.run import JobRun
from muster.errors import InvalidInput
from muster.frameworks.registry import framework_names, get_framework
from muster.spec.reader import spec_from_mapping
from support.embedded import embedded
from support.plugins import block, install_from

PAGE = "frameworks/README.md"


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    site = tmp_path / "site"
    install_from(PAGE, site, "shelf", '"""`framework: shelf`')
    monkeypatch.syspath_prepend(str(site))
    importlib.invalidate_caches()
    yield
    sys.modules.pop("shelf", None)


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "read.py").write_text(block(PAGE, "python", "import os"))
    (folder / "words.txt").write_text("one two three")
    return folder


def start(client: Client, code: Path, program: str = "read.py", **more: object) -> JobRun:
    fields = {"name": "words", "artifact": str(code), "entrypoint": program, "framework": "shelf"}
    job = embedded(client).prepare_job(spec_from_mapping({**fields, **more}))
    return client.start(client.prepare_run(job.record, new_job=job.new))


@pytest.mark.shows("distributed-jobs/framework-custom")
@pytest.mark.usefixtures("shelf")
def test_the_main_node_serves_and_the_others_read(client: Client, code: Path) -> None:
    run = start(client, code, nodes=3).wait(120)
    assert run.state == "SUCCEEDED", run.details
    messages = {record.message for record in run.logs(streams=["stdout"])}
    assert messages == {"node 1 has read 3 words", "node 2 has read 3 words"}
    assert [node.group for node in run.nodes] == ["main", "workers", "workers"]


@pytest.mark.usefixtures("shelf")
def test_only_the_killed_reader_is_replaced(client: Client, code: Path) -> None:
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
def test_the_framework_is_listed_with_its_ports() -> None:
    assert "shelf" in framework_names()
    assert [need.ports for need in get_framework("shelf").needs] == ["8000"]


@pytest.mark.usefixtures("shelf")
@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"nodes": 1}, r"no node would read \(use 2 or more\)"),
        ({"nodes": 2, "framework_options": {"pth": "x"}}, 'pth: unknown field .*"path"'),
        ({"nodes": 2, "env": {"SHELF_PORT": "x"}}, "'x' is not a port"),
    ],
)
def test_invalid_settings_are_refused(
    client: Client, code: Path, more: dict[str, object], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        start(client, code, **more)
    assert client.runs() == []
