from __future__ import annotations

from datetime import date

import pytest

from muster.spec.wording import Refused, close_to, say, short, suggestion


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "nothing"),
        (True, "true"),
        ({"password": 1}, "a mapping"),
        (["secret"], "a list"),
        (1.5, "1.5"),
        ("x", "'x'"),
        (date(2024, 1, 1), "a date"),
    ],
)
def test_a_value_in_a_sentence(value: object, text: str) -> None:
    assert say(value) == text


def test_long_values_are_cut() -> None:
    assert short("x" * 1000) == "'" + "x" * 55 + "...'"
    assert len(short("x" * 1000)) == 60


def test_what_was_meant() -> None:
    assert close_to("LOCAL", ["local", "locale"]) == ["local"]
    assert suggestion("werkers", ["driver", "workers"]) == 'did you mean "workers"?'
    assert suggestion("zzz", ["driver", "workers"]) == "there are: driver, workers"


def test_a_refusal_reads_as_one_sentence() -> None:
    assert str(Refused("it is wrong", "write it right")) == "it is wrong; write it right"
    assert str(Refused("it is wrong")) == "it is wrong"
