"""Placeholders `${...}`, and text that only looks like one."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.spec.placeholders import (
    fill,
    fill_parameters,
    joined,
    literal,
    parameters_in,
    pieces,
    placeholders,
)

#: Template -> the filled text.
FILLED = {
    "": "",
    "plain": "plain",
    "${rank}": "<rank>",
    "a${rank}-${run.id}z": "a<rank>-<run.id>z",
    "$HOME ${HOME} ${} $5 $": "$HOME ${HOME} ${} $5 $",
    "$$ $$HOME a$$": "$$ $$HOME a$$",
    "$${rank}": "${rank}",
    "$$${rank}": "$<rank>",
    "$$$${rank}": "$${rank}",
    "$$$$${rank}": "$$<rank>",
    "$${HOME}": "${HOME}",
    "$$${HOME}": "$${HOME}",
    "$$${": "$${",
    "${ra${rank}k}": "${ra<rank>k}",
}


@pytest.mark.parametrize("template", FILLED)
def test_placeholders_are_filled(template: str) -> None:
    assert fill(template, lambda name: f"<{name}>") == FILLED[template]


PARAMETERS = {
    "${param.lr}": "<lr>",
    "a${param.Max-steps.x_1}b${rank}": "a<Max-steps.x_1>b${rank}",
    "$${param.lr} $$${param.lr}": "${param.lr} $<lr>",
    "$${HOME} ${param.} ${params.lr} $param.lr": "$${HOME} ${param.} ${params.lr} $param.lr",
}


@pytest.mark.parametrize("text", PARAMETERS)
def test_only_placeholders_of_parameters_are_filled(text: str) -> None:
    assert fill_parameters(text, lambda name: f"<{name}>") == PARAMETERS[text]


def test_the_parameters_in_a_text() -> None:
    assert parameters_in("${param.a} $${param.b} $$${param.c-d} ${e}") == ["a", "c-d"]


@given(st.lists(st.sampled_from(["$", "{", "}", "param.", "a", "B-1", "${param.x}"])))
def test_parameters_are_placeholders_of_nodes_too(pieces: list[str]) -> None:
    text = "".join(pieces)
    of_nodes = [name for name in placeholders(text) if name.startswith("param.")]
    assert of_nodes == list(dict.fromkeys(f"param.{name}" for name in parameters_in(text)))


def test_each_name_is_listed_once() -> None:
    assert placeholders("${a}${b.c} $${d} ${a} ${E}") == ["a", "b.c"]


texts = st.text("${}rank.A", max_size=12)


@given(texts)
def test_any_text_has_a_template(text: str) -> None:
    assert fill(literal(text), str.upper) == text
    assert placeholders(literal(text)) == []


@given(texts)
def test_other_text_is_not_a_placeholder(text: str) -> None:
    if not re.search(r"\$\$\{|\$\{[a-z0-9_.-]+\}", text):
        assert literal(text) == text == fill(text, str.upper)


@given(st.lists(texts | st.just(None)))
def test_placeholders_can_be_combined(parts: list[str | None]) -> None:
    template = joined(("${x}", "x") if part is None else (part, None) for part in parts)
    assert fill(template, lambda _: "@") == "".join("@" if p is None else p for p in parts)
    assert joined(pieces(template)) == template
