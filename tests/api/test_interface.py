"""Everything that a method takes and returns can be sent."""

from __future__ import annotations

import inspect
from typing import Any, get_args

import msgspec
import pytest

from muster.api.interface import MusterAPI
from muster.service.embedded import EmbeddedAPI
from support.json_api import METHODS, Method

ALL = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)


@ALL
def test_types_can_be_decoded_from_json(method: Method) -> None:
    for hint in (*method.parameters.values(), method.item or method.answer):
        assert hint is not Any
        assert Any not in get_args(hint)
        msgspec.json.Decoder(hint)  # raises TypeError for what cannot be sent


@ALL
def test_the_embedded_implementation_has_the_same_parameters(method: Method) -> None:
    own = inspect.signature(getattr(EmbeddedAPI, method.name))
    assert [*own.parameters.values()] == [*method.signature.parameters.values()]
    assert own.return_annotation == method.signature.return_annotation


@ALL
def test_methods_are_documented(method: Method) -> None:
    assert inspect.getdoc(getattr(MusterAPI, method.name))
