"""No file makes Muster crash, hang or print what a terminal acts on.

MUSTER_FUZZ_COUNT=200000 pytest tests/test_fuzz.py     # more than the usual
MUSTER_FUZZ_SEED=3f2a:17 pytest tests/test_fuzz.py     # one file again
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from muster.frameworks.registry import framework_names
from support.fuzz import LONGEST, bounded, corpus, examine, folder_for, mutant

COUNT = int(os.environ.get("MUSTER_FUZZ_COUNT", "2000"))
SEED = os.environ.get("MUSTER_FUZZ_SEED", "")


def seeds() -> list[str]:
    """New ones every time; or the one that is asked for, or all that begin as it says."""
    if ":" in SEED:
        return [SEED]
    base = SEED or os.urandom(4).hex()
    return [f"{base}:{number}" for number in range(COUNT)]


def test_what_is_mutated_is_good_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder, home = folder_for(tmp_path)
    good = 0
    for text in corpus():
        (folder / "job.yaml").write_text(text)
        good += examine(folder / "job.yaml", home)
    assert good > 20, "most of them run"


@pytest.mark.timeout(600 + COUNT)
def test_whatever_a_file_holds_there_is_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    assert run or ":" in SEED, "some mutants still run"


@pytest.mark.parametrize("framework", framework_names())
@pytest.mark.parametrize("size", ["nodes: 2147483648", "nodes: 100000\nprocesses_per_node: 1024"])
def test_no_framework_lays_out_what_is_far_too_large(
    tmp_path: Path, framework: str, size: str
) -> None:
    folder, home = folder_for(tmp_path)
    path = folder / "job.yaml"
    path.write_text(f"command: [python, train.py]\nframework: {framework}\n{size}\n")
    with bounded(LONGEST):
        assert not examine(path, home)
