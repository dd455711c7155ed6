"""No file makes Muster crash, hang or print control characters.

MUSTER_FUZZ_COUNT=200000 pytest tests/test_fuzz.py     # more files than the default
MUSTER_FUZZ_SEED=3f2a:17 pytest tests/test_fuzz.py     # repeat one file
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from muster.frameworks.registry import framework_names
from support.fuzz import LONGEST, bounded, corpus, examine, folder_for, mutant

COUNT = int(os.environ.get("MUSTER_FUZZ_COUNT", "1000"))
SEED = os.environ.get("MUSTER_FUZZ_SEED", "")


def seeds() -> list[str]:
    """New seeds in each run, or those that MUSTER_FUZZ_SEED selects by their prefix."""
    if ":" in SEED:
        return [SEED]
    base = SEED or os.urandom(4).hex()
    return [f"{base}:{number}" for number in range(COUNT)]


def test_the_files_that_are_mutated_are_valid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder, home = folder_for(tmp_path)
    good = 0
    for text in corpus():
        (folder / "job.yaml").write_text(text)
        good += examine(folder / "job.yaml", home)
    assert good > 20, "most valid files can run"


@pytest.mark.timeout(600 + COUNT)
def test_any_file_is_read_or_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder, home = folder_for(tmp_path)
    texts = corpus()
    found: list[str] = []
    run = 0
    for seed in seeds():
        suffix, data = mutant(texts, seed)
        path = folder / f"job{suffix}"
        path.write_bytes(data)
        try:
            with bounded(LONGEST):
                run += examine(path, home)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            found.append(f"MUSTER_FUZZ_SEED={seed}: {type(error).__name__}: {str(error)[:300]}")
        path.unlink()
    assert not found, f"{len(found)} findings:\n" + "\n".join(found[:50])
    assert run or ":" in SEED, "some mutated files can run"


@pytest.mark.parametrize("framework", framework_names())
@pytest.mark.parametrize("size", ["nodes: 2147483648", "nodes: 100000\nprocesses_per_node: 1024"])
def test_jobs_that_are_far_too_large_are_refused_in_time(
    tmp_path: Path, framework: str, size: str
) -> None:
    folder, home = folder_for(tmp_path)
    path = folder / "job.yaml"
    path.write_text(f"command: [python, train.py]\nframework: {framework}\n{size}\n")
    with bounded(LONGEST):
        assert not examine(path, home)
