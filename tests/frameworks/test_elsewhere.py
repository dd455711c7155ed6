"""Each framework on nodes with servers, as on machines where Muster is not installed: its example,
unchanged but for the engine."""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from support.command import json_of, muster, output_of
from support.mpi import needs_mpich
from support.plugins import install

TESTS = Path(__file__).parents[1]
EXAMPLES = TESTS.parent / "examples"


@pytest.fixture(autouse=True)
def servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install the engine of `support.remote_engine`."""
    site = tmp_path / "site"
    install(
        site,
        "muster-servers",
        "1",
        {"muster.engines": {"servers": "support.remote_engine:Servers"}},
    )
    for path in (str(TESTS), str(site)):
        monkeypatch.setenv("PYTHONPATH", path, prepend=os.pathsep)


def needs(package: str, name: str, *expected: str, slow: bool = True) -> object:
    """An example, with parts of its output, if a package is installed."""
    missing = find_spec(package) is None
    marks = [pytest.mark.skipif(missing, reason=f"{package} is not installed")]
    if name == "mpi":
        marks.append(needs_mpich)
    if slow:
        marks.append(pytest.mark.slow)
    return pytest.param(name, expected, marks=marks, id=name)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        needs("os", "preprocess", slow=False),
        needs("os", "recovery", slow=False),
        needs("nbclient", "notebook"),
        needs("torch", "pytorch-digits", "accuracy"),
        needs("torch", "pytorch-elastic", "accuracy"),
        needs("lightning", "lightning", "accuracy"),
        needs("accelerate", "accelerate", "accuracy"),
        needs("deepspeed", "deepspeed", "accuracy"),
        needs("jax", "jax", "accuracy"),
        needs("tensorflow", "tensorflow", "accuracy"),
        needs("tensorflow", "tensorflow-ps", "accuracy"),
        needs("mpi4py", "mpi", "accuracy"),
        needs("horovod", "horovod", "accuracy"),
        needs("ray", "ray", "accuracy"),
        needs("pyspark", "spark", "accuracy"),
    ],
)
def test_an_example(name: str, expected: tuple[str, ...], tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES / name, tmp_path / name)
    spec = tmp_path / name / "job.yaml"
    fields = yaml.safe_load(spec.read_text()) | {"engine": "servers"}
    spec.write_text(yaml.safe_dump(fields))
    done = muster("run", str(spec), timeout=600)
    shown = output_of("logs", "last")
    details = json_of("runs", "show", "last", "--json")["details"]
    assert done.returncode == 0, f"{details}\n{shown}\n{done.stderr}"
    for text in expected:
        assert text in shown


DASK = """
import os
from distributed import Client

with Client() as client:
    client.wait_for_workers(3)
    places = client.run(lambda: (os.environ["OF_HOST"], os.environ["MUSTER_NODE_ID"]))
    print("sum", client.submit(sum, range(10)).result(), len(set(places.values())))
"""


@pytest.mark.skipif(find_spec("distributed") is None, reason="Dask is not installed")
def test_dask(tmp_path: Path) -> None:
    """Not the example: LightGBM tells nodes apart by their addresses."""
    (tmp_path / "train.py").write_text(DASK)
    given = ("--engine", "servers", "--framework", "dask", "--nodes", "3")
    assert "sum 45 3" in output_of("run", *given, str(tmp_path / "train.py"))
