"""The configuration of a MUSTER_HOME, and what is refused with its line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from muster.errors import InvalidInput
from muster.spec.toml_file import parse_toml
from muster.storage.config import Config, Retention, config_of, read_config
from muster.storage.home import Home


@pytest.mark.parametrize(
    ("text", "retention"),
    [
        ("", None),
        ("# nothing\n", None),
        ("[retention]\n", Retention()),
        ("[retention]\nkeep = 200\n", Retention(keep=200)),
        ('[retention]\nolder_than = "30d"\n', Retention(older_than=30 * 86400)),
        ("retention = { keep = 1, older_than = '90s' }\n", Retention(1, 90)),
        ("[retention]\nolder_than = 0\n", Retention(older_than=0.0)),
    ],
)
def test_settings(text: str, retention: Retention | None) -> None:
    assert config_of(parse_toml(text, Path("c"))) == Config(retention)


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        (
            "\n[retention]\nkep = 3\nolder_then = 1\n",
            [
                'c:3: retention.kep: unknown setting (did you mean "keep"?)',
                'c:4: retention.older_then: unknown setting (did you mean "older_than"?)',
            ],
        ),
        ("keep = 3\n", ["c:1: keep: unknown setting (the settings are retention)"]),
        (
            "[retention]\nolder_than = 7\n",
            ['c:2: retention.older_than: 7 has no unit (write "7s", "7m", "7h" or "7d")'],
        ),
        ("[retantion]\n", ['c:1: retantion: unknown setting (did you mean "retention"?)']),
        (
            "retention = 3\n",
            ["c:1: retention: must be a table (write [retention] on a line of its own)"],
        ),
        (
            '[retention]\nkeep = -1\nolder_than = "soon"\n',
            [
                "c:2: retention.keep: must be 0 or more, not -1 "
                "(the number of newest ended runs to keep)",
                "c:3: retention.older_than: 'soon' is not a duration; write 90s, 10m, 1h30m or 30d",
            ],
        ),
    ],
)
def test_every_problem_is_reported_with_its_line(text: str, problems: list[str]) -> None:
    with pytest.raises(InvalidInput) as caught:
        config_of(parse_toml(text, Path("c")))
    assert [str(problem) for problem in caught.value.problems] == problems


def test_text_that_is_not_toml_is_refused_with_its_line() -> None:
    with pytest.raises(InvalidInput, match=r"^c:2: not TOML: "):
        parse_toml("[retention]\nkeep = = 3\n", Path("c"))


def test_without_a_file_nothing_is_set(tmp_path: Path) -> None:
    assert read_config(Home(tmp_path)) == Config()


def test_a_file_that_cannot_be_read_is_reported(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidInput, match=r"config\.toml: cannot be read: .*utf-8"):
        read_config(Home(tmp_path))


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_what_is_not_a_file_is_reported_at_once(tmp_path: Path, kind: str) -> None:
    config = tmp_path / "config.toml"
    if kind == "pipe":
        os.mkfifo(config)
    else:
        config.symlink_to("/dev/zero")
    with pytest.raises(InvalidInput, match=r"cannot be read: .*not a regular file"):
        read_config(Home(tmp_path))


def test_an_enormous_file_is_not_read_in_part(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("[retention]\nkeep = 1\n" + "#\n" * (1 << 19))
    with pytest.raises(InvalidInput, match="is larger than 1MiB"):
        read_config(Home(tmp_path))
