"""Examples on several machines that need addresses of their own, with a real sshd on machines in
network namespaces. See also tests/frameworks/test_elsewhere.py."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from support.lab import laboratory, needs_lab

EXAMPLES = Path(__file__).parents[3] / "examples"
pytestmark = [needs_lab, pytest.mark.slow]


@pytest.mark.skipif(find_spec("lightgbm") is None, reason="LightGBM is not installed")
def test_dask(tmp_path: Path) -> None:
    with laboratory(tmp_path, 3) as lab:
        lab.add_engine()
        code, out, err = lab.muster(
            "run",
            "--engine",
            "hosts",
            "--env",
            "OMP_NUM_THREADS=1",
            str(EXAMPLES / "dask/job.yaml"),
        )
    assert code == 0, out + err
    assert "total number of machines: 3" in out
    assert "main/0    | test accuracy" in out
