"""What is said of programs that will not do what their authors mean on a framework's cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from muster.client.client import Client
from muster.frameworks.registry import framework_names, get_framework

KERAS = "s = tf.distribute.MultiWorkerMirroredStrategy()\nmodel.fit(x)"


@pytest.mark.parametrize(
    ("framework", "source", "said"),
    [
        ("dask", "from distributed import Client\nwith Client() as c: pass", None),
        ("dask", "c = Client(timeout=3)", None),
        ("dask", "\nc = Client(n_workers=4)", "line 2: Dask refuses Client(n_workers=...)"),
        ("dask", "c = dask.distributed.Client(processes=False)", "Client(processes=...)"),
        ("dask", "c = Client(LocalCluster(n_workers=2))", "line 1: a LocalCluster works on the"),
        ("dask", "with distributed.LocalCluster() as c: pass", "line 1: a LocalCluster works"),
        ("dask", "import lightgbm as lgb", "LightGBM on Dask"),
        (
            "dask",
            "from lightgbm.dask import DaskLGBMClassifier",
            "say `network: cluster` or `isolated`",
        ),
        ("dask", "import xgboost", None),
        ("dask", "not Python at all", None),
        ("dask", "", None),
        ("tensorflow", KERAS, "pip install tf_keras, and env: {TF_USE_LEGACY_KERAS: 1}"),
        ("tensorflow", f"os.environ['TF_USE_LEGACY_KERAS'] = '1'\n{KERAS}", None),
        ("tensorflow", "model.fit(x)", None),
    ],
)
def test_advice(framework: str, source: str, said: str | None) -> None:
    found = get_framework(framework).advice(source, "shared", ())
    assert len(found) == (said is not None)
    assert said is None or said in found[0]


def test_what_the_owner_has_done_already() -> None:
    assert not get_framework("dask").advice("import lightgbm", "isolated", ())
    assert not get_framework("tensorflow").advice(KERAS, "shared", {"TF_USE_LEGACY_KERAS"})


@pytest.mark.parametrize("name", framework_names())
def test_nobody_complains_of_a_program_without_a_fault(name: str) -> None:
    networks: tuple[Literal["shared", "isolated"], ...] = ("shared", "isolated")
    for network in networks:
        assert get_framework(name).advice("print('hello')", network, ()) == ()


@pytest.mark.parametrize("beside", ["", "import helper\n"])
def test_it_is_a_note_of_the_run(tmp_path: Path, beside: str) -> None:
    """Of a script alone, and of one in an archive with its modules."""
    (tmp_path / "helper.py").touch()
    (tmp_path / "train.py").write_text(f"{beside}Client(n_workers=2)\n")
    client = Client(tmp_path / "home")
    job, new = client.job(tmp_path / "train.py", framework="dask")
    notes = client.draft(job, new_job=new).notes
    assert any(note.startswith("train.py: line ") and "Dask refuses" in note for note in notes)
    job, new = client.job(tmp_path / "train.py")
    assert not any("Dask" in note for note in client.draft(job, new_job=new).notes)
