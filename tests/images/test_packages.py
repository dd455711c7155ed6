"""Packages and ports of frameworks in images."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from muster.errors import InvalidInput
from muster.frameworks.registry import framework_names
from muster.images.packages import check_framework, packages_of, ports_of
from muster.images.requirements import read_requirement


@pytest.mark.parametrize("name", framework_names())
def test_every_framework_has_packages(name: str) -> None:
    packages = packages_of(name)
    assert packages is not None
    ours = {item.name for text in packages.pip if (item := read_requirement(text))}
    assert len(ours) == len(packages.pip)
    for other, mine in packages.same:
        assert other == canonicalize_name(other)
        assert mine in ours


@pytest.mark.shows(
    "cluster-design/recipe-ports",
    "ads-configuration/pytorch-port",
    "ads-configuration/tensorflow-port",
)
def test_exposed_ports_are_those_of_the_framework() -> None:
    assert ports_of("dask") == ("3000-3100", "8700-8800", "8786", "8787")
    assert ports_of("pytorch") == ("29400",)
    assert ports_of("tensorflow") == ("12345",)
    assert ports_of("generic") == ("29400",)


def test_an_unknown_framework_is_reported_for_its_flag() -> None:
    with pytest.raises(InvalidInput, match=r'--framework: no framework .* mean "dask"'):
        check_framework("daks")


def test_horovod_s_compiler_raises_the_standard_and_nothing_else(tmp_path: Path) -> None:
    packages = packages_of("horovod")
    assert packages is not None
    # given: the step as a recipe runs it, with a compiler that prints its arguments
    wrapper = tmp_path / "c++"
    step = packages.steps[0].replace("/usr/local/bin/c++-17", str(wrapper))
    subprocess.run(["sh", "-c", step], check=True)
    (tmp_path / "g++").write_text('#!/bin/sh\nprintf "[%s]" "$@"\n')
    (tmp_path / "g++").chmod(0o755)
    # when
    command = [str(wrapper), "-std=gnu++14", "-DX=a b", "-std=c++20", "-std=c++14", "x.cc"]
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=env)
    # then
    assert done.stdout == "[-std=gnu++17][-DX=a b][-std=c++20][-std=gnu++17][x.cc]"
