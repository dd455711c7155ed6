"""The page on ADS's YAML names every field of ADS, read or not."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args

import pytest
from msgspec import Struct
from msgspec.structs import fields

from muster.spec.formats.ads import model as ads
from muster.spec.formats.ads.unread_fields import TABLES

PAGE = (Path(__file__).parents[4] / "docs/reference/ads.md").read_text()
#: The page's parts on one kind each, and on both: fields of one kind are not looked up in the
#: part on the other.
TOP, DISTRIBUTED, JOB, BOTH, _ = re.split(r"^## ", PAGE, flags=re.MULTILINE)
MODELS = [
    model
    for model in vars(ads).values()
    if isinstance(model, type) and issubclass(model, Struct) and model is not Struct
]


def named_for(model: type[Struct]) -> set[str]:
    """The names in the parts of the page on the model; `a.b` is a and b."""
    text = TOP + BOTH
    if model in reachable(ads.Distributed):
        text += DISTRIBUTED
    if model in reachable(ads.Job):
        text += JOB
    quoted = " ".join(re.findall(r"`([^`\n]+)`", text))
    return set(re.findall(r"\w+", quoted))


def reachable(model: type[Struct]) -> set[type[Struct]]:
    found = {model}
    for info in fields(model):
        for kind in kinds(info.type):
            if kind not in found:
                found |= reachable(kind)
    return found


def kinds(annotation: Any) -> list[type[Struct]]:
    if isinstance(annotation, type) and issubclass(annotation, Struct):
        return [annotation]
    return [kind for inner in get_args(annotation) for kind in kinds(inner)]


def test_every_model_is_listed() -> None:
    assert set(MODELS) == reachable(ads.Job) | reachable(ads.Distributed)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_every_field_is_on_the_page(model: type[Struct]) -> None:
    tables = (TABLES.ignored, TABLES.noted, TABLES.refused)
    names = [info.encode_name for info in fields(model)]
    names += [name for table in tables for name in table.get(model, ())]
    named = named_for(model)
    assert [name for name in names if name not in named] == []


def test_no_field_is_both_read_and_listed_as_unread() -> None:
    for model in MODELS:
        read = {info.encode_name for info in fields(model)}
        left = [*TABLES.noted.get(model, ()), *TABLES.refused.get(model, ())]
        assert not read & set(left)
        assert len(left) == len(set(left))
