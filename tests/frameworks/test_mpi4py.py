"""mpi4py's own suite, unmodified: under Muster each test ends as under the launcher by itself."""

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


#: Runs the suite's main program, and notes how each test has ended on this rank.
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


def noting(name):
    def note(self, test, *details):
        getattr(unittest.TextTestResult, "add" + name)(self, test, *details)
        outcomes[test.id()] = name

    return note


def note_part(self, test, part, error):
    unittest.TextTestResult.addSubTest(self, test, part, error)
    if error is not None:
        outcomes[part.id()] = "Failure" if issubclass(error[0], test.failureException) else "Error"


names = ("Success", "Failure", "Error", "Skip", "ExpectedFailure", "UnexpectedSuccess")
members = {"addSubTest": note_part, **{"add" + name: noting(name) for name in names}}
Result = type("Result", (unittest.TextTestResult,), members)
runner = type("Runner", (unittest.TextTestRunner,), {"resultclass": Result})
try:
    main.main(module=None, testRunner=runner)
except SystemExit:
    pass  # what it would say is in the outcomes, and it would have mpi4py abort the other ranks

from mpi4py import MPI

(ended / f"{MPI.COMM_WORLD.rank}.json").write_text(json.dumps(outcomes))
"""

#: All but what a rank does by itself, and takes longest; and each array once, not of every kind.
WHOLE = ["--no-numpy", "-e", "test_datatype"]
#: What depends on how ranks come to be, and on where they are.
PLACES = ["--no-numpy", "-i", "test_(spawn|dynproc|comm|win|environ|session|cco_ngh_obj)"]
#: Open MPI 5.0.11 cannot connect, nor spawn ranks for one node on another (docs/frameworks/mpi.md).
FAR = [*PLACES, "-e", "test_(dynproc|spawn)"]


@pytest.fixture(scope="session")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tests of the mpi4py that is installed, from its source distribution."""
    import mpi4py

    folder = tmp_path_factory.mktemp("mpi4py")
    words = ["download", "--quiet", "--no-deps", "--no-binary", "mpi4py", "--dest", str(folder)]
    wanted = f"mpi4py=={mpi4py.__version__}"
    subprocess.run([sys.executable, "-m", "pip", *words, wanted], check=True)
    (source,) = folder.glob("mpi4py-*.tar.gz")
    with tarfile.open(source) as archive:
        archive.extractall(folder, filter="data")
    return Path(str(source).removesuffix(".tar.gz")) / "test"


def by_itself(flavour: str, ranks: int, words: list[str]) -> None:
    """Have the launcher start the ranks, all on this machine."""
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


def by_us(
    client: Client, folder: Path, flavour: str, nodes: int, each: int, words: list[str]
) -> None:
    options = {"flavour": flavour, "slots": 64}
    spec = {"artifact": words[0], "framework": "mpi", "framework_options": options}
    spec |= {"nodes": nodes, "processes_per_node": each, "args": words[1:]}
    (folder / "job.yaml").write_text(json.dumps(spec))
    job, new = client.job(folder / "job.yaml")
    run = client.start(client.draft(job, overrides_from({}), new_job=new))
    run.wait()


@pytest.mark.parametrize(
    ("flavour", "nodes", "each", "tests"),
    [
        pytest.param("mpich", 2, 1, WHOLE, marks=needs_mpich),
        pytest.param("mpich", 3, 1, PLACES, marks=needs_mpich),
        pytest.param("mpich", 2, 2, PLACES, marks=needs_mpich),
        pytest.param("openmpi", 1, 2, WHOLE, marks=needs_open_mpi),
        pytest.param("openmpi", 2, 1, FAR, marks=needs_open_mpi),
    ],
)
def test_every_test_ends_as_it_does_without_us(
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
            by_itself(flavour, nodes * each, words)
        else:
            by_us(client, tmp_path, flavour, nodes, each, words)
        files = sorted(ended.iterdir())
        assert [file.name for file in files] == [f"{rank}.json" for rank in range(nodes * each)]
        found[who] = [json.loads(file.read_text()) for file in files]
    for alone, ours in zip(found["alone"], found["muster"], strict=True):
        print(Counter(alone.values()), Counter(ours.values()))
        assert "Success" in ours.values()
        assert {t: ours.get(t) for t in alone if ours.get(t) != alone[t]} == {}
        assert set(ours) == set(alone)
