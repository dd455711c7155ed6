from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from muster.errors import InvalidInput
from muster.spec.yaml import MAX_DEPTH, load


def refused(text: str, source: str = "f.yaml") -> str:
    with pytest.raises(InvalidInput) as caught:
        load(text, source)
    return str(caught.value)


def test_every_path_has_its_line() -> None:
    data, lines = load("a: 1\nb:\n- c: 2\n  d:\n    e: 3\n- 4\n", "f")
    assert data == {"a": 1, "b": [{"c": 2, "d": {"e": 3}}, 4]}
    expected = {
        "": 1,
        "a": 1,
        "b": 2,
        "b[0]": 3,
        "b[0].c": 3,
        "b[0].d": 4,
        "b[0].d.e": 5,
        "b[1]": 6,
    }
    assert lines == expected


def test_keys_are_text() -> None:
    assert load("{NO: 1, 1: 2, 2024-01-01: 3, ~: 4}", "f")[0] == {
        "NO": 1,
        "1": 2,
        "2024-01-01": 3,
        "~": 4,
    }


def test_anchors_and_merge_keys_work() -> None:
    data, _ = load("a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}\n", "f")
    assert data["b"] == {"x": 1, "y": 3}


def test_text_below_a_root() -> None:
    assert load("010", "--set", "tags.a")[0] == "010"
    assert load("010", "--set", "resources.cpus")[0] == 8


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "a: 1\na: 2\nb: {c: 1, c: 2}\n",
            "f.yaml:2: a: given twice, first on line 1 (remove one)\n"
            "f.yaml:3: b.c: given twice, first on line 3 (remove one)",
        ),
        (
            "a:\n\tb: 1\n",
            "f.yaml:2: not valid YAML: a tab where spaces are needed (indent with spaces)",
        ),
        (
            'x: 1\na: "b\nc: 1\n',
            "f.yaml:2: not valid YAML: found unexpected end of stream "
            "(a quote that is opened here is never closed)",
        ),
        (
            "a: b: c\n",
            "f.yaml:1: not valid YAML: mapping values are not allowed in this context "
            '(put text that holds ": " in quotes)',
        ),
        (
            "a: *b\n",
            "f.yaml:1: not valid YAML: found undefined alias "
            "(a text that starts with * needs quotes)",
        ),
        (
            "a: @b\n",
            "f.yaml:1: not valid YAML: found character that cannot start any token "
            "(text that starts with @, ` or % needs quotes)",
        ),
        (
            "a: 1\n---\nb: 2\n",
            "f.yaml:2: not valid YAML: but found another document "
            "(one file holds one job; remove the --- between)",
        ),
        (
            "a: \x01\n",
            "f.yaml: contains the character '\\x01', which YAML does not allow (remove it)",
        ),
        (
            "a: &a [*a]\n",
            "f.yaml:1: a[0]: an alias that contains itself (write it without & and *)",
        ),
        ("# only a comment\n", "f.yaml: the file is empty (`muster schema` prints the fields)"),
    ],
)
def test_errors_say_what_is_wrong_and_what_to_do(text: str, message: str) -> None:
    assert refused(text) == message


def test_errors_in_json_name_json() -> None:
    assert refused('{"a": 1', "f.json").startswith("f.json:1: not valid JSON: ")


@pytest.mark.parametrize("tag", ["!!python/object:os.system", "!env", "!!python/name:os.system"])
def test_no_tag_runs_or_reads_anything(tag: str) -> None:
    hint = "(leave it out; a text that starts with ! needs quotes)"
    assert refused(f"env: {{A: {tag} x}}\n").endswith(hint)


@pytest.mark.parametrize(
    "value",
    [
        *("!!set {a, b}", "!!omap [a: 1]", "!!pairs [a: 1]", "!!binary aGk=", "!!python/tuple [1]"),
        *("!!bool maybe", "!!int x", "!!float x", "!!null x", "!!map [a]", "!!seq {a: 1}"),
        *("!!int []", "!!int 1.5", "!!str [a]"),
    ],
)
def test_a_value_has_the_type_of_its_tag_or_is_refused(value: str) -> None:
    tag = value.partition(" ")[0]
    assert refused(f"a:\n- {value}\n").startswith(f"f.yaml:2: a[0]: the tag {tag} is not supported")


def test_a_tag_of_the_right_type_changes_nothing() -> None:
    text = (
        "a: [!!int 1, !!float 1.5, !!float 1, !!str 1, "
        "!!null ~, !!bool yes, !!map {b: 1}, !!seq [1]]"
    )
    assert load(text, "f")[0] == {"a": [1, 1.5, 1.0, "1", None, True, {"b": 1}, [1]]}


def test_a_date_is_text() -> None:
    text = "a: 2024-01-02\nb: !!timestamp 2024-13-45\nc: =\n"
    assert load(text, "f")[0] == {"a": "2024-01-02", "b": "2024-13-45", "c": "="}


@pytest.mark.parametrize("number", ["9" * 5000, "0x" + "f" * 9000, "1:" * 3000 + "0", "1." * 999])
def test_numbers_are_bounded(number: str) -> None:
    try:
        data, _ = load(f"a: {number}", "f.yaml")
    except InvalidInput as error:
        assert "is too long for a number (put it in quotes, if it is text)" in str(error)
    else:
        assert data == {"a": number}, "text"


@pytest.mark.parametrize("opening", ["[", "{a: ", "- "])
def test_depth_is_bounded(opening: str) -> None:
    assert "nested more than 50 levels deep" in refused(opening * 200_000)
    nested = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert load(nested, "f")[0]


def test_depth_through_aliases_is_bounded() -> None:
    nest, close = "[" * 40, "]" * 40
    lines = ["a0: &a0 x", *(f"a{n}: &a{n} {nest}*a{n - 1}{close}" for n in range(1, 60))]
    assert "nested more than 50 levels deep" in refused("\n".join(lines))


def test_aliases_of_aliases_are_bounded() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    assert "more than 100,000 values (do aliases contain aliases?)" in refused("\n".join(lines))


def test_long_names_of_many_values_are_bounded() -> None:
    """Every value has a path, and every path is kept."""
    message = refused(f"? {'a' * 1_000_000}\n: [{'0,' * 60}0]")
    assert message.startswith("f.yaml:2: ")
    assert "are too long (shorten them)" in message
    assert len(message) < 200
    nested = f"{('{' + 'k' * 1000 + ': ') * 45}[{'0,' * 1000}]{'}' * 45}"
    assert "are too long (shorten them)" in refused(nested)


def test_lines_of_a_text_below_others() -> None:
    assert load("a: 1\nb: [2]", "f", above=9)[1] == {"": 10, "a": 10, "b": 11, "b[0]": 11}
    for text, line in (
        ("a: 1\na: 2", 11),
        ("a: [", 10),
        (f"\n{'- ' * 60}x", 11),
        ("a: !x y", 10),
        ("a: 1\n\tb", 11),
    ):
        with pytest.raises(InvalidInput) as caught:
            load(text, "f", above=9)
        assert caught.value.problems[0].source == f"f:{line}"


@given(
    st.text(st.sampled_from("ab01:-[]{},&*!\"'#|>%@~ \n\t.=<"), max_size=40) | st.text(max_size=30)
)
@example("2024-13-45")
@example("=")
@example("? [a]\n: 1")
def test_any_text_is_data_or_refused(text: str) -> None:
    try:
        _, lines = load(text, "f")
    except InvalidInput as error:
        assert error.problems
    else:
        assert lines


@pytest.mark.parametrize("written", ["12:00:00", "1:30", "90", "2-00:00:00"])
def test_a_time_limit_of_slurm_is_used_as_written(written: str) -> None:
    """YAML 1.1 would read 1:30 as the number 90."""
    for spec in (f"slurm: {{time: {written}}}", f"node_groups: [{{slurm: {{time: {written}}}}}]"):
        data, _ = load(spec, "job.yaml")
        level = data if "slurm" in data else data["node_groups"][0]
        assert level["slurm"] == {"time": written}
