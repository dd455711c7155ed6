"""The types of single fields are those that msgspec finds when it evaluates all of them."""

from __future__ import annotations

import pytest
from msgspec import Struct, defstruct

from muster.frameworks.accelerate import AccelerateOptions
from muster.spec import models, override_models, policies, sources
from muster.spec.decode import _required_fields, _type_of, decode, fields_of


class Own(Struct, kw_only=True):
    first: int
    second: str | None = None
    third: list[int]


class Inherited(Own, kw_only=True):
    fourth: tuple[Own, ...] = ()
    second: str


def _models() -> list[type[Struct]]:
    modules = (models, override_models, policies, sources)
    found = [each for module in modules for each in vars(module).values()]
    return [each for each in found if isinstance(each, type) and issubclass(each, Struct)]


@pytest.mark.parametrize(
    "model",
    [
        *dict.fromkeys(_models()),
        Own,
        Inherited,
        AccelerateOptions,
        defstruct("Evaluated", [("a", int), ("b", str | None, None)]),
    ],
)
def test_a_field_has_the_type_that_msgspec_finds(model: type[Struct]) -> None:
    known = fields_of(model)
    assert {info.name: _type_of(model, info.name) for info in known} == {
        info.name: info.type for info in known
    }
    assert set(_required_fields(model)) == {info.name for info in known if info.required}


def test_fields_of_a_base_are_decoded_too() -> None:
    data = {"first": 1, "second": "x", "third": [2], "fourth": [{"first": 3, "third": []}]}
    problems: list[object] = []
    decoded = decode(Inherited, data, problems)  # type: ignore[arg-type]
    assert problems == []
    assert decoded == Inherited(first=1, second="x", third=[2], fourth=(Own(first=3, third=[]),))
