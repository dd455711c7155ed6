"""Checks of the documentation's site, while it is built."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

HOOKS = runpy.run_path(str(Path(__file__).parents[1] / "docs" / "hooks.py"))
PAGE = SimpleNamespace(file=SimpleNamespace(src_uri="guides/x.md"))


@pytest.mark.parametrize(
    "element",
    [
        '<script src="https://host/a.js">',
        '<script async src="//host/a.js">',
        '<link rel="stylesheet" href="https://host/a.css">',
        "<link href=https://host rel=preconnect crossorigin>",
        '<img alt="a" src="http://host/a.png">',
    ],
)
def test_a_page_that_loads_something_from_elsewhere_is_refused(element: str) -> None:
    with pytest.raises(ValueError) as error:
        HOOKS["on_post_page"](f"<body>{element}</body>", page=PAGE)
    assert str(error.value) == f"guides/x.md: is loaded from elsewhere: {element}"


@pytest.mark.parametrize(
    "element",
    [
        '<a href="https://host/">',
        '<link rel="canonical" href="https://host/guides/x/">',
        '<script src="../assets/a.js">',
        '<img src="../pictures/hello.svg">',
    ],
)
def test_links_and_own_files_are_kept(element: str) -> None:
    assert HOOKS["on_post_page"](element, page=PAGE) == element
