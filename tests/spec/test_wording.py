from __future__ import annotations

from datetime import date

import pytest
from msgspec import Struct, field

from muster.errors import Problem
from muster.spec.decode import decode
from muster.spec.formats.jobset.schema import check_structure
from muster.spec.models import Array
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


def test_suggestions() -> None:
    assert close_to("LOCAL", ["local", "locale"]) == ["local"]
    assert suggestion("werkers", ["driver", "workers"]) == 'did you mean "workers"?'
    assert suggestion("zzz", ["driver", "workers"]) == "use driver or workers"


def test_a_refusal_reads_as_one_sentence() -> None:
    assert str(Refused("it is wrong", "write it right")) == "it is wrong; write it right"
    assert str(Refused("it is wrong")) == "it is wrong"


def test_parts_of_a_secret_are_hidden() -> None:
    problems: list[Problem] = []
    decode(Array, {"parameters": {"api_token": "hunter2 x=4711,1"}}, problems)
    (problem,) = problems
    assert "hunter2" not in str(problem)
    assert "4711" not in str(problem)


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ("12345-66666", "*** is one value"),
        ("12-99", "*** is one value"),
        ("77,9..3", "*** is an empty range"),
        ("hunter2 x=4", "*** has a second parameter"),
        (f"1,{'q' * 70}(", "'***...' has ( without its pair"),
        ("hunter2,y[", "'***' has [ without its pair"),
        ("hunter2,", '*** has an empty value at column 9 (write "" for an empty text)'),
    ],
)
def test_neither_a_message_nor_a_hint_has_a_part_of_a_secret(values: str, problem: str) -> None:
    problems: list[Problem] = []
    decode(Array, {"parameters": {"password": values}}, problems)
    (found,) = problems
    assert str(found).removeprefix("parameters.password: ").startswith(problem)
    for part in ("12345", "99", "..3", "qqqq", "hunter2", "y["):
        assert part not in str(found)


class Made(Struct):
    token: int = 0
    token_file: int = 0
    limits: dict[str, int] = field(default_factory=dict)


def test_values_of_secrets_are_hidden() -> None:
    problems: list[Problem] = []
    given = {"DB_PASSWORD": "hunter2", "A": "shown"}
    decode(Made, {"token": "hunter2", "token_file": "shown", "limits": given}, problems)
    assert [str(problem) for problem in problems] == [
        "token: must be a whole number, not ***",
        "token_file: must be a whole number, not 'shown'",
        "limits.DB_PASSWORD: must be a whole number, not ***",
        "limits.A: must be a whole number, not 'shown'",
    ]


def test_values_of_secrets_in_manifests_are_hidden() -> None:
    env = [{"name": "DB_PASSWORD", "value": 12345678}, {"name": "A", "value": 12345678}]
    container = {"name": "c", "image": "i", "env": env}
    pod = {"spec": {"containers": [container]}}
    group = {"name": "w", "template": {"spec": {"template": pod}}}
    data = {"kind": "JobSet", "metadata": {"name": "a"}, "spec": {"replicatedJobs": [group]}}
    wrong, shown = [str(problem) for problem in check_structure(data)[1]]
    assert wrong.endswith('env[0].value: must be text, not *** (put it in quotes: "***")')
    assert "env[1].value: must be text, not 12345678" in shown


def test_similar_names_that_differ_only_in_case() -> None:
    assert close_to("Othr", ["other", "Other", "OTHER"], 3) == ["Other"]
    assert close_to("OTHER", ["Other", "OTHER"]) == ["OTHER"]
    assert close_to("TRAIN.PY", ["train.py", "trail.py"]) == ["train.py"]
