"""The commands of the guide, typed with Muster's own server as the service."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from muster.spec.ocids import TENANCY
from support.oci_engine_server import oci_server
from support.oci_service import needs_sdk
from support.pages import read_page, type_commands

pytestmark = [
    needs_sdk,
    pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed"),
]


@pytest.mark.usefixtures("own_home")
def test_the_commands_of_the_guide_work(tmp_path: Path) -> None:
    page, folder, results = read_page("docs/guides/oci.md"), tmp_path / "own", tmp_path / "typed"
    folder.mkdir()
    results.mkdir()
    (folder / "train.py").write_text("print('epoch 1/1')\n")
    (folder / "job.yaml").write_text("artifact: train.py\nnodes: 2\n")
    with oci_server() as server:
        key = f"--config {server.config}"
        other = "--endpoint http://localhost:8000 --config-profile MUSTER"
        # what the reader has, and what there is here
        words = {
            "ocid1.compartment.oc1..aaaa": TENANCY,
            "ocid1.datascienceproject.oc1.iad.aaaa": server.project,
            "--bucket oci://jobs@ourtenancy": f"--endpoint {server.url} {key}",
            "COMPARTMENT": TENANCY,
            "PROJECT": server.project,
            other: f"--endpoint {server.url} {key}",
        }
        commands = []
        for command in page.commands:
            text = command.text
            for theirs, ours in words.items():
                text = text.replace(theirs, ours)
            commands.append(command._replace(text=text, output=[]))
        assert len(commands) == 5
        type_commands(page, commands, folder, results)
    outputs = [path.read_text() for path in sorted(results.glob("*.out"))]
    assert sum("epoch 1/1" in text for text in outputs) == 2
