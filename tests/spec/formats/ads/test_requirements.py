"""Requirements of ADS YAML."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.errors import InvalidInput
from support.ads import (
    job,
    read,
)


def requirements(folder: Path, source: str, **dependencies: str) -> tuple[str, ...] | None:
    data = job("pyTorchDistributed", source=source, command="x", dependencies=dependencies)
    return read(folder, data)[0].requirements


def test_pytorch_with_requirements(folder: Path) -> None:
    assert requirements(folder, ".", pipPackages="a>1 b") == ("a>1", "b")
    (folder / "code").mkdir()
    (folder / "code" / "more.txt").touch()
    (folder / "code" / "train.py").touch()
    more = str(folder / "code" / "more.txt")
    assert requirements(folder, "code", pipRequirements="more.txt") == (more,)
    assert requirements(folder, "file://code", pipRequirements="more.txt") == (more,)
    assert requirements(folder, "code/train.py", pipRequirements="more.txt") == (more,)
    both = {"pipRequirements": "more.txt", "pipPackages": "a>1 b"}
    assert requirements(folder, "code", **both) == (more, "a>1", "b")


def test_requirements_of_a_repository_are_read_from_it(folder: Path) -> None:
    data = job(
        "pyTorchDistributed",
        git={"url": "https://h/o/r.git"},
        command="x",
        dependencies={"pipRequirements": "more.txt", "pipPackages": "a"},
    )
    assert read(folder, data)[0].requirements == ("more.txt", "a")


def test_requirements_files_are_searched_in_the_code(folder: Path) -> None:
    """Not in the folder of the YAML, where the file exists as well."""
    (folder / "code").mkdir()
    where = "spec.runtime.spec.dependencies.pipRequirements"
    for name, text in {"requirements.txt": "not found", "reqs.in": "is not a .txt file"}.items():
        data = job(
            "pyTorchDistributed", source="code", command="x", dependencies={"pipRequirements": name}
        )
        with pytest.raises(InvalidInput) as caught:
            read(folder, data)
        (problem,) = caught.value.problems
        assert problem.path == where
        assert text in problem.message
        lines = (folder / "ads.yaml").read_text().splitlines()
        line = next(i for i, text in enumerate(lines, 1) if "pipRequirements" in text)
        assert problem.source.endswith(f"ads.yaml:{line}")
