"""The Python packages that frameworks need."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from muster.frameworks.packages import PACKAGES, install_command, may_install, python_of
from muster.frameworks.registry import framework_names

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]


def test_every_extra_exists() -> None:
    assert set(PACKAGES) <= set(framework_names())
    extras = {packages.extra for packages in PACKAGES.values()} - {""}
    assert extras <= set(PROJECT["optional-dependencies"])


@pytest.mark.parametrize(
    ("command", "file", "python"),
    [
        (("python", "a.py"), None, "python"),
        (("/opt/x/bin/python3.12", "a.py"), "b.py", "/opt/x/bin/python3.12"),
        (None, "pkg/train.py", ""),
        (None, "a.ipynb", ""),
        (None, "a.sh", None),
        (None, None, None),
        (("sh", "-c", "python a.py", "sh"), None, None),
        (("./train",), "a.py", None),
        (("pythonic",), None, None),
    ],
)
def test_the_python_of_a_program(
    command: tuple[str, ...] | None, file: str | None, python: str | None
) -> None:
    assert python_of(command, file) == python


@pytest.mark.parametrize(
    ("line", "installs"),
    [
        ("torch==2.0", True),
        ("Torch [x] >= 2 ; python_version > '3'", True),
        ("torchvision", False),
        ("pandas", False),
        ("-r other.txt", True),
        ("git+https://h/o/r", True),
        ("./wheels/x.whl", True),
    ],
)
def test_requirements_that_may_install_a_package(line: str, installs: bool) -> None:
    assert may_install(["numpy", line], ["torch"]) == installs


def test_how_to_install() -> None:
    dask, horovod = PACKAGES["dask"], PACKAGES["horovod"]
    assert install_command(dask, ["distributed"]) == "pip install 'muster-jobs[dask]'"
    assert install_command(dask, ["distributed"], "/x/python") == (
        "/x/python -m pip install distributed"
    )
    assert install_command(horovod, ["horovod"]) == "pip install horovod"
