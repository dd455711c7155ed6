"""docs/guides/images.md agrees with the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from muster.frameworks.registry import framework_names
from muster.images.packages import packages_of
from muster.images.prepare import ImageRequest, prepare
from muster.images.recipe import recipe_text
from muster.images.wheel import Wheel

PAGE = Path(__file__).parents[2] / "docs/guides/images.md"


@pytest.mark.shows("cluster-design/recipe")
def test_the_recipe_on_the_page_is_current(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    shown = re.search(r"```dockerfile\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert shown is not None
    name = re.search(r"muster_jobs-\S+\.whl", shown[1])
    assert name is not None
    request = ImageRequest(framework="dask", source=tmp_path, entrypoint="train.py")
    assert recipe_text(prepare(request, Wheel(name[0], b""), tmp_path / "home").recipe) == shown[1]


def test_every_framework_is_on_the_page_with_its_versions() -> None:
    rows = {
        match[1]: match[2]
        for line in PAGE.read_text().splitlines()
        if (match := re.fullmatch(r"\| ([a-z]+) \| (.*) \|", line))
    }
    for name in framework_names():
        packages = packages_of(name)
        assert packages is not None
        expected = [*packages.pip, *re.findall(r"'(\S+==\S+)'", " ".join(packages.steps))]
        for text in expected:
            package, _, version = text.partition("==")
            if version:
                assert f"{package} {version}" in rows[name].replace("Horovod", "horovod")
