"""The artifact of a job, as the service runs it: unpacked, or as it is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from muster.engines.oci.artifact import artifact

DESCRIBED: dict[str, Any] = {
    "number": 0,
    "folder": "/nowhere",
    "settings": {},
    "groups": {"a": [0, 1]},
    "nodes": {},
    "tokens": {},
}


@pytest.mark.parametrize("unpacked", [True, False])
def test_python_runs_it_with_the_description_in_it(tmp_path: Path, unpacked: bool) -> None:
    program = tmp_path / "muster-r1-0.zip"
    program.write_bytes(artifact(DESCRIBED))
    if unpacked:
        with zipfile.ZipFile(program) as archive:
            archive.extractall(tmp_path / "code")
        program = tmp_path / "code" / "__main__.py"
    environ = {"PATH": os.environ["PATH"], "NODE_RANK": "7", "NODE_GROUP_NAME": "a"}
    done = subprocess.run(
        [sys.executable, "-S", str(program)],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == (
        "muster: this node cannot start: the service has given it rank 7, but group a has 2 nodes\n"
    )


def test_the_same_description_gives_the_same_bytes() -> None:
    assert artifact(DESCRIBED) == artifact(json.loads(json.dumps(DESCRIBED)))
    assert artifact(DESCRIBED) != artifact({**DESCRIBED, "number": 1})
