"""Advice on programs that would not run on a framework's cluster as intended."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from muster.client.client import Client
from muster.frameworks.registry import framework_names, get_framework

KERAS = "s = tf.distribute.MultiWorkerMirroredStrategy()\nmodel.fit(x)"


@pytest.mark.parametrize(
    ("framework", "source", "expected"),
    [
        ("dask", "from distributed import Client\nwith Client() as c: pass", None),
        ("dask", "c = Client(timeout=3)", None),
        ("dask", "\nc = Client(n_workers=4)", "line 2: Dask refuses Client(n_workers=...)"),
        ("dask", "c = dask.distributed.Client(processes=False)", "Client(processes=...)"),
        ("dask", "c = Client(LocalCluster(n_workers=2))", "line 1: a LocalCluster uses only"),
        ("dask", "with distributed.LocalCluster() as c: pass", "line 1: a LocalCluster uses"),
        ("dask", "import lightgbm as lgb", "LightGBM on Dask"),
        (
            "dask",
            "from lightgbm.dask import DaskLGBMClassifier",
            "use `network: cluster` or `isolated`",
        ),
        ("dask", "import xgboost", None),
        ("dask", "not Python at all", None),
        ("dask", "", None),
        ("tensorflow", KERAS, "pip install tf_keras, and env: {TF_USE_LEGACY_KERAS: 1}"),
        ("tensorflow", f"os.environ['TF_USE_LEGACY_KERAS'] = '1'\n{KERAS}", None),
        ("tensorflow", "model.fit(x)", None),
    ],
)
def test_advice_on_a_program(framework: str, source: str, expected: str | None) -> None:
    found = get_framework(framework).advice(source, "shared", ())
    assert len(found) == (expected is not None)
    assert expected is None or expected in found[0]


def test_no_advice_on_what_is_set_already() -> None:
    assert not get_framework("dask").advice("import lightgbm", "isolated", ())
    assert not get_framework("tensorflow").advice(KERAS, "shared", {"TF_USE_LEGACY_KERAS"})


@pytest.mark.parametrize("name", framework_names())
def test_no_advice_on_a_program_without_a_fault(name: str) -> None:
    networks: tuple[Literal["shared", "isolated"], ...] = ("shared", "isolated")
    for network in networks:
        assert get_framework(name).advice("print('hello')", network, ()) == ()


@pytest.mark.parametrize("imports", ["", "import helper\n"])
def test_advice_is_a_note_of_the_run(tmp_path: Path, imports: str) -> None:
    """The program is a single script, or a script archived with its modules."""
    (tmp_path / "helper.py").touch()
    (tmp_path / "train.py").write_text(f"{imports}Client(n_workers=2)\n")
    client = Client(tmp_path / "home")
    job, new = client.job(tmp_path / "train.py", framework="dask")
    notes = client.prepare_run(job, new_job=new).notes
    assert any(note.startswith("train.py: line ") and "Dask refuses" in note for note in notes)
    job, new = client.job(tmp_path / "train.py")
    assert not any("Dask" in note for note in client.prepare_run(job, new_job=new).notes)
