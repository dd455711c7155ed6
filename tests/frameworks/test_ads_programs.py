"""Programs written for ADS's jobs run unchanged: their variables and folders exist."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

#: Connects as programs for Dask on ADS do: with the port from a variable, and with a fixed port.
CLIENT = """
import os, sys
from distributed import Client

ip = os.environ["SCHEDULER_IP"]
values = lambda: (os.environ["OCI__MODE"], os.environ["OCI__WORKER_COUNT"])
with Client(f"{ip}:{os.environ.get('SCHEDULER_PORT', '8786')}"), Client(f"{ip}:8786") as client:
    print(*values(), *client.run(values).values(), *sys.argv[1:])
with open(os.path.join(os.environ["OCI__SYNC_DIR"], "results.txt"), "w") as file:
    file.write("done")
"""
READER = """
from pathlib import Path
print(Path("data/input.txt").read_text())
Path("data/result.txt").write_text("done")
"""


def run(folder: Path, data: dict[str, Any]) -> str:
    (folder / "ads.yaml").write_text(yaml.safe_dump(data))
    ended = subprocess.run(
        [sys.executable, "-m", "muster", "run", "ads.yaml"],
        cwd=folder,
        env={**os.environ, "MUSTER_HOME": str(folder / "home")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.mark.slow
def test_a_dask_client_runs_unchanged(tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    (tmp_path / "client.py").write_text(CLIENT)
    cluster = {"image": "<image>", "main": {"config": None}, "worker": {"replicas": 1}}
    runtime = {"entryPoint": "/code/client.py", "kwargs": "--data /code/data"}
    data = {
        "kind": "distributed",
        "spec": {
            "cluster": {"kind": "dask", "spec": cluster},
            "runtime": {"kind": "python", "spec": runtime},
        },
    }
    assert "MAIN 1 ('WORKER', '1') --data data" in run(tmp_path, data)


def test_inputs_and_outputs_are_in_the_working_directory(tmp_path: Path) -> None:
    code = tmp_path / "code_dir"
    (code / "data").mkdir(parents=True)
    (code / "data" / "shipped.txt").write_text("with the code")
    (code / "reader.py").write_text(READER)
    (tmp_path / "in.txt").write_text("an input")
    output = {
        "scriptPathURI": "code_dir",
        "workingDir": "code_dir",
        "entrypoint": "reader.py",
        "inputs": {f"file://{tmp_path}/in.txt": "data/input.txt"},
        "outputDir": "data",
        "outputUri": f"file://{tmp_path}/out",
    }
    data = {"kind": "job", "spec": {"runtime": {"type": "python", "spec": output}}}
    assert "an input" in run(tmp_path, data)
    written = {path.name: path.read_text() for path in (tmp_path / "out").iterdir()}
    assert written["result.txt"] == "done"
    assert written["shipped.txt"] == "with the code", (
        "files of the code in the output folder are kept"
    )
