"""Each framework on nodes with servers, on machines, in containers and on Slurm: its example,
unchanged, with another `--engine`."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

from support.command import json_of, muster, output_of
from support.installed_engines import install_engine
from support.mpi import needs_mpich

EXAMPLES = Path(__file__).parents[2] / "examples"
#: The first has no programs of an infrastructure to wait for, and stands for what all share.
ENGINES = ["servers", "hosts", "container", "slurm"]
#: What is run in each test run. The others take longer, and are alike.
QUICK = [
    ("servers", "preprocess"),
    ("servers", "recovery"),
    ("slurm", "pytorch-digits"),
]


#: Example -> the package that it needs, and a part of its output.
PACKAGES = {
    "preprocess": ("os", ""),
    "recovery": ("os", ""),
    "notebook": ("nbclient", ""),
    "pytorch-digits": ("torch", "test accuracy: 0.928"),
    "pytorch-elastic": ("torch", "accuracy"),
    "lightning": ("lightning", "accuracy"),
    "accelerate": ("accelerate", "accuracy"),
    "deepspeed": ("deepspeed", "accuracy"),
    "jax": ("jax", "accuracy"),
    "tensorflow": ("tensorflow", "accuracy"),
    "tensorflow-ps": ("tensorflow", "accuracy"),
    "mpi": ("mpi4py", "accuracy"),
    "horovod": ("horovod", "accuracy"),
    "ray": ("ray", "accuracy"),
    "spark": ("pyspark", "accuracy"),
}


def examples() -> list[object]:
    """Each example on each engine, with a part of its output, if its package is installed."""
    found = []
    for name, (package, expected) in PACKAGES.items():
        for engine in ENGINES:
            missing = find_spec(package) is None
            marks = [pytest.mark.skipif(missing, reason=f"{package} is not installed")]
            if name == "mpi":
                marks.append(needs_mpich)
            if (engine, name) not in QUICK:
                marks.append(pytest.mark.slow)
            found.append(pytest.param(engine, name, expected, marks=marks, id=f"{name}-{engine}"))
    return found


@pytest.mark.parametrize(("engine", "name", "expected"), examples())
def test_an_example(
    engine: str,
    name: str,
    expected: str,
    tmp_path: Path,
    own_home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install_engine(engine, own_home, tmp_path, monkeypatch)
    # without what a run in the source tree has left, such as `make demo`
    shutil.copytree(EXAMPLES / name, tmp_path / name, ignore=shutil.ignore_patterns("*.pt"))
    done = muster("run", str(tmp_path / name / "job.yaml"), "--engine", engine, timeout=600)
    shown = output_of("logs", "last")
    details = json_of("runs", "show", "last", "--json")["details"]
    assert done.returncode == 0, f"{details}\n{shown}\n{done.stderr}"
    assert expected in shown


DASK = """
import os
from distributed import Client

with Client() as client:
    client.wait_for_workers(3)
    places = client.run(lambda: os.environ["MUSTER_NODE_ID"])
    print("sum", client.submit(sum, range(10)).result(), len(set(places.values())))
"""


@pytest.mark.skipif(find_spec("distributed") is None, reason="Dask is not installed")
@pytest.mark.parametrize(
    "engine", ["servers", *(pytest.param(name, marks=pytest.mark.slow) for name in ENGINES[1:])]
)
def test_dask(engine: str, tmp_path: Path, own_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the example: LightGBM tells nodes apart by their addresses."""
    install_engine(engine, own_home, tmp_path, monkeypatch)
    (tmp_path / "train.py").write_text(DASK)
    given = ("--engine", engine, "--framework", "dask", "--nodes", "3")
    assert "sum 45 3" in output_of("run", *given, str(tmp_path / "train.py"))
