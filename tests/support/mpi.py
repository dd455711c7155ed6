"""What tests of MPI need on this machine."""

from __future__ import annotations

import shutil
from importlib.util import find_spec

import pytest

needs_mpich = pytest.mark.skipif(
    shutil.which("mpiexec.hydra") is None or find_spec("mpi4py") is None,
    reason="MPICH (mpiexec.hydra) and mpi4py are not installed",
)
needs_open_mpi = pytest.mark.skipif(
    shutil.which("prterun") is None or find_spec("mpi4py") is None,
    reason="Open MPI 5 (prterun) and mpi4py are not installed",
)
