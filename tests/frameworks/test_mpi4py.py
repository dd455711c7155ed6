"""mpi4py's own suite, unmodified: each test ends under Muster as under the launcher alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections import Counter
from pathlib import Path

import pytest

from muster.client.client import Client, overrides_from
from support.mpi import needs_mpich, needs_open_mpi

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


#: Runs the suite's main program and records the outcome of each test on this rank.
DRIVER = """
import json
import sys
import unittest
from pathlib import Path

ended, suite = Path(sys.argv[1]), Path(sys.argv[2])
sys.path.insert(0, str(suite))
sys.argv[:] = [str(suite / "main.py"), *sys.argv[3:]]

import main

outcomes = {}


def recorder(name):
    def record(self, test, *details):
        getattr(unittest.TextTestResult, "add" + name)(self, test, *details)
        outcomes[test.id()] = name

    return record


def record_part(self, test, part, error):
    unittest.TextTestResult.addSubTest(self, test, part, error)
    if error is not None:
        outcomes[part.id()] = "Failure" if issubclass(error[0], test.failureException) else "Error"


names = ("Success", "Failure", "Error", "Skip", "ExpectedFailure", "UnexpectedSuccess")
members = {"addSubTest": record_part, **{"add" + name: recorder(name) for name in names}}
Result = type("Result", (unittest.TextTestResult,), members)
runner = type("Runner", (unittest.TextTestRunner,), {"resultclass": Result})
try:
    main.main(module=None, testRunner=runner)
except SystemExit:
    pass  # the outcomes are recorded; this exit would make mpi4py abort the other ranks

from mpi4py import MPI

(ended / f"{MPI.COMM_WORLD.rank}.json").write_text(json.dumps(outcomes))
"""

#: All tests but the longest, which does not communicate; with arrays of one library only.
WHOLE = ["--no-numpy", "-e", "test_datatype"]
#: Tests that depend on how ranks are started and on which nodes they are.
PLACES = ["--no-numpy", "-i", "test_(spawn|dynproc|comm|win|environ|session|cco_ngh_obj)"]
#: Open MPI 5.0.11 cannot connect, nor spawn ranks for one node on another (docs/frameworks/mpi.md).
PLACES_OPEN_MPI = [*PLACES, "-e", "test_(dynproc|spawn)"]


@pytest.fixture(scope="session")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tests of the installed mpi4py, from its source distribution."""
    import mpi4py

    folder = tmp_path_factory.mktemp("mpi4py")
    words = ["download", "--quiet", "--no-deps", "--no-binary", "mpi4py", "--dest", str(folder)]
    expected = f"mpi4py=={mpi4py.__version__}"
    subprocess.run([sys.executable, "-m", "pip", *words, expected], check=True)
    (source,) = folder.glob("mpi4py-*.tar.gz")
    with tarfile.open(source) as archive:
        archive.extractall(folder, filter="data")
    return Path(str(source).removesuffix(".tar.gz")) / "test"


def run_with_launcher(flavour: str, ranks: int, words: list[str]) -> None:
    """Run the suite with the launcher alone, all ranks on this machine."""
    library = "libmpi.so.12" if flavour == "mpich" else "libmpi.so.40"
    program = shutil.which("mpiexec.hydra" if flavour == "mpich" else "mpirun")
    assert program is not None
    more = [] if flavour == "mpich" else ["--oversubscribe", "--bind-to", "none"]
    env = {
        **os.environ,
        "MPI4PY_LIBMPI": str(Path(program).parent.parent / "lib" / library),
        "MPIR_CVAR_CH4_NETMOD": "ofi",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }
    argv = [program, *more, "-n", str(ranks), sys.executable, "-m", "mpi4py", *words]
    subprocess.run(argv, env=env, stdin=subprocess.DEVNULL, check=False)


def run_with_muster(
    client: Client, folder: Path, flavour: str, nodes: int, each: int, words: list[str]
) -> None:
    options = {"flavour": flavour, "slots": 64}
    spec = {"artifact": words[0], "framework": "mpi", "framework_options": options}
    spec |= {"nodes": nodes, "processes_per_node": each, "args": words[1:]}
    (folder / "job.yaml").write_text(json.dumps(spec))
    job, new = client.job(folder / "job.yaml")
    run = client.start(client.prepare_run(job, overrides_from({}), new_job=new))
    run.wait()


@pytest.mark.parametrize(
    ("flavour", "nodes", "each", "tests"),
    [
        pytest.param("mpich", 2, 1, WHOLE, marks=needs_mpich),
        pytest.param("mpich", 3, 1, PLACES, marks=needs_mpich),
        pytest.param("mpich", 2, 2, PLACES, marks=needs_mpich),
        pytest.param("openmpi", 1, 2, WHOLE, marks=needs_open_mpi),
        pytest.param("openmpi", 2, 1, PLACES_OPEN_MPI, marks=needs_open_mpi),
    ],
)
def test_each_test_has_the_same_outcome_under_muster(
    client: Client,
    tmp_path: Path,
    suite: Path,
    flavour: str,
    nodes: int,
    each: int,
    tests: list[str],
) -> None:
    driver = tmp_path / "driver.py"
    driver.write_text(DRIVER)
    found = {}
    for who in ("alone", "muster"):
        ended = tmp_path / who
        ended.mkdir()
        words = [str(driver), str(ended), str(suite), *tests]
        if who == "alone":
            run_with_launcher(flavour, nodes * each, words)
        else:
            run_with_muster(client, tmp_path, flavour, nodes, each, words)
        files = sorted(ended.iterdir())
        assert [file.name for file in files] == [f"{rank}.json" for rank in range(nodes * each)]
        found[who] = [json.loads(file.read_text()) for file in files]
    for alone, muster in zip(found["alone"], found["muster"], strict=True):
        print(Counter(alone.values()), Counter(muster.values()))
        assert "Success" in muster.values()
        assert {t: muster.get(t) for t in alone if muster.get(t) != alone[t]} == {}
        assert set(muster) == set(alone)
