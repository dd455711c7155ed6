"""Files that describe engines."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.engines.hosts.engine import HostsEngine
from muster.engines.profiles import (
    file_of,
    profile_names,
    profile_of,
    profile_text,
    read_profile,
    write_profile,
)
from muster.engines.registry import engine_named
from muster.errors import InvalidInput
from muster.spec.toml_file import parse_toml
from muster.storage.home import Home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    (tmp_path / "engines").mkdir()
    return Home(tmp_path)


def write(home: Home, text: str | bytes, name: str = "lab") -> Path:
    file = home.engines / f"{name}.toml"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return file


def problem_of(home: Home, name: str = "lab") -> str:
    with pytest.raises(InvalidInput) as error:
        engine_named(name, home)
    (problem,) = error.value.problems
    return str(problem)


def test_a_profile_is_read(home: Home) -> None:
    file = write(home, 'kind = "hosts"\nhosts = ["gpu1"]\n')
    profile = read_profile(home, "lab")
    assert profile is not None
    assert (profile.name, profile.kind, profile.file.file) == ("lab", "hosts", file)
    assert profile.settings == {"hosts": ["gpu1"]}
    assert isinstance(engine_named("lab", home), HostsEngine)


@pytest.mark.parametrize("name", ["../lab", "/etc/lab", "Lab", "-lab", "lab-", "", ".", "a" * 41])
def test_names_that_no_engine_has(home: Home, name: str) -> None:
    write(home, 'kind = "hosts"\nhosts = ["gpu1"]\n')
    (home.root / "lab.toml").write_text('kind = "hosts"\nhosts = ["gpu1"]\n')
    assert read_profile(home, name) is None
    assert problem_of(home, name).startswith(f"engine: no engine named {name!r} is installed")
    with pytest.raises(InvalidInput, match="cannot be the name of an engine"):
        profile_text(name, "hosts", {})


def test_the_names_of_profiles(home: Home) -> None:
    for name in ("b", "a-1", "Not", "-x", ".hidden"):
        write(home, "", name)
    (home.engines / "c.toml.part").touch()
    assert profile_names(home) == ["a-1", "b"]
    assert profile_names(Home(home.root / "missing")) == []
    assert read_profile(home, "missing") is None


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ('kind = "hosts"\nhosts = [,]\n', 2, "not TOML: "),
        ('kind = "hosts"\nhosts = [', None, "not TOML: Invalid value (at end of document)"),
        ("a = " + "[" * 100_000, None, "not TOML: it is nested too deeply"),
        ('hosts = ["gpu1"]\n', None, "kind: must be a kind of engine"),
        ('# mine\nkind = 1\nhosts = ["gpu1"]\n', 2, "kind: must be a kind of engine"),
        ('\nkind = "pbs"\n', 2, "kind: no kind of engine is named 'pbs' (there is container, "),
        (
            'kind = "hosts"\nhosts = ["a"]\n\nslots = 0\n',
            4,
            "slots: must be between 1 and 1024, not 0",
        ),
        (
            'kind = "hosts"\nhosts = [\n  "a",\n  "-v",\n]\n',
            2,
            "hosts[1]: must be [USER@]HOST[:PORT], not '-v'",
        ),
        ('kind = "hosts"\nhosts = ["a"]\nslot = 1\n', 3, "slot: unknown setting"),
        (b'kind = "\xff"', None, "cannot be read: "),
        ("#" * ((1 << 20) + 1), None, "is larger than 1MiB"),
    ],
)
def test_a_problem_has_its_line(home: Home, text: str | bytes, line: int | None, says: str) -> None:
    file = write(home, text)
    place = f"{file}:{line}" if line else str(file)
    assert problem_of(home).startswith(f"{place}: {says}")


def test_a_profile_that_is_no_file(home: Home) -> None:
    (home.engines / "lab.toml").mkdir()
    assert "cannot be read: [Errno 22] not a regular file" in problem_of(home)


@given(st.lists(st.text(st.characters(codec="utf-8"))), st.integers(0, 1024))
def test_what_is_written_is_read(texts: list[str], number: int) -> None:
    settings = {"hosts": texts, "slots": number, "folder": "\x7f\\u007f'\"\n" + "".join(texts)}
    text = profile_text("lab", "hosts", settings)
    profile = profile_of("lab", parse_toml(text, Path("lab.toml")))
    assert (profile.kind, profile.settings) == ("hosts", settings)


def test_only_the_user_can_read_it(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    file = file_of(home, "lab")
    for text in ("a = 1\n", "b = 2\n"):
        write_profile(file, text)
        assert file.read_text() == text
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert list(file.parent.iterdir()) == [file]
