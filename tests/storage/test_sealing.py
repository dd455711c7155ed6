"""Secrets in data of the store are encrypted; what is shown of them needs no key."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from muster.errors import InvalidInput
from muster.secrets import HIDDEN, SEALED_MARK, hidden, redacted
from muster.storage import sealing
from muster.storage.home import Home
from muster.storage.sealing import keyed_digest, seal, seal_file, unseal, unseal_file

SECRET = "hunter2-4711"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return Home(tmp_path_factory.mktemp("sealed"))


@pytest.fixture
def new_home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


TEXTS = st.text() | st.sampled_from(
    [
        "x",
        f"https://me:{SECRET}@host/a?sig={SECRET}",
        f"s3://key:{SECRET}@bucket/a",
        f"--token={SECRET}",
        "--token",
        f"export DB_PASSWORD='{SECRET} x' && ./train",
        f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n",
        "$HF_TOKEN",
        HIDDEN,
        SEALED_MARK,
        f"{SEALED_MARK}abc:",
        f"a {SEALED_MARK}abc:def",
    ]
)
NAMES = st.sampled_from(
    ["env", "node_env", "name", "value", "API_TOKEN", "PATH", "tags", "command", "mounts", "a.b"]
)
SPECS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(NAMES, inner, max_size=5)
    ),
    max_leaves=20,
)


@given(data=SPECS)
@example(data=["-TOKEN", "--TOKEN=0"])
@example(data=["--TOKEN=0", "x"])
@example(data={"name": "", "value": ""})
def test_sealed_data_opens_to_what_it_was_and_shows_what_was_shown(home: Home, data: Any) -> None:
    sealed = seal(home, data)
    as_json = json.loads(json.dumps(data))  # tuples are lists
    assert unseal(home, json.loads(json.dumps(sealed)), "run x-1") == as_json
    shown = hidden(data)
    if json.loads(json.dumps(shown)) == as_json:
        assert shown is data
        assert sealed is data, "without secrets nothing changes"
        assert unseal(home, data, "run x-1") is data
    else:
        assert json.loads(json.dumps(sealed)) != as_json
        assert "gAAAA" not in json.dumps(hidden(sealed))
        assert hidden(sealed) == hidden(shown)


@pytest.mark.parametrize(
    "data",
    [
        {"env": {"API_TOKEN": SECRET}, "node_groups": [{"node_env": {"DB_PASS": SECRET}}]},
        {"command": ["train", "--password", SECRET], "args": [f"--token={SECRET}"]},
        {"command": ["sh", "-c", f"API_KEY={SECRET} ./train"]},
        {"git": {"url": f"https://me:{SECRET}@host/a.git"}},
        {"mounts": [{"source": f"ftp://me:{SECRET}@host/a", "path": "/a"}]},
        {"mounts": [{"source": f"https://host/a?X-Amz-Signature={SECRET}"}]},
        {"framework_options": {"conf": {"spark.ssl.keyPassword": SECRET}, "token": SECRET}},
        {"startup_probe": {"headers": [{"name": "Authorization-Token", "value": SECRET}]}},
        {"requirements": [f"--index-url=https://me:{SECRET}@host/simple", "numpy"]},
        {"tags": {"password": SECRET}, "description": f"with password={SECRET}"},
    ],
)
def test_no_part_of_a_spec_keeps_its_secret(home: Home, data: Any) -> None:
    sealed = seal(home, data)
    assert SECRET in json.dumps(data)
    assert SECRET not in json.dumps(sealed)
    assert hidden(sealed) == hidden(data)
    assert unseal(home, sealed, "run x-1") == data


def test_a_sealed_value_within_another_text_is_not_shown(home: Home) -> None:
    (sealed,) = seal(home, {"url": f"https://me:{SECRET}@host/a"}).values()
    assert redacted(f"cannot read {sealed} (403)") == "cannot read https://host/a (403)"


def test_a_file_is_sealed_as_a_whole(home: Home) -> None:
    content = b"A=1\0TOKEN=\xff\0"
    sealed = seal_file(home, content)
    assert content not in sealed
    assert unseal_file(home, sealed, "run x-1") == content
    assert unseal_file(home, content, "run x-1") == content, "of a version before"


def test_the_key_is_private_and_of_this_home(new_home: Home) -> None:
    assert seal(new_home, {"a": "b"}) == {"a": "b"}
    assert not new_home.secret_key.exists(), "created with the first secret"
    old = os.umask(0)
    try:
        seal(new_home, {"TOKEN": "a"})
    finally:
        os.umask(old)
    assert stat.S_IMODE(new_home.secret_key.stat().st_mode) == 0o600
    before = new_home.secret_key.read_bytes()
    digest = keyed_digest(new_home, "x")
    assert new_home.secret_key.read_bytes() == before
    assert digest != keyed_digest(Home(new_home.root / "other"), "x")


def test_processes_that_need_the_key_at_once_get_the_same(new_home: Home) -> None:
    new_home.prepare()
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from muster.storage.home import Home\n"
        "from muster.storage.sealing import keyed_digest\n"
        "print('ready', flush=True)\n"
        "sys.stdin.readline()\n"
        "print(keyed_digest(Home(Path(sys.argv[1])), 'x'))\n"
    )
    argv = [sys.executable, "-c", code, str(new_home.root)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    started = [subprocess.Popen(argv, text=True, **pipes) for _ in range(6)]  # type: ignore[call-overload]
    for process in started:
        process.stdout.readline()
    for process in started:
        process.stdin.write("\n")
        process.stdin.flush()
    assert {process.communicate()[0] for process in started} == {f"{keyed_digest(new_home, 'x')}\n"}


def test_a_process_that_comes_second_does_not_replace_the_key(new_home: Home) -> None:
    new_home.prepare()
    assert sealing._create(new_home.secret_key) == sealing._create(new_home.secret_key)


def test_an_older_key_is_added_as_another_line(new_home: Home, tmp_path: Path) -> None:
    sealed = seal(new_home, {"TOKEN": "a"})
    other = Home(tmp_path / "other")
    seal(other, {"TOKEN": "b"})
    key = new_home.secret_key.read_bytes()
    new_home.secret_key.write_bytes(other.secret_key.read_bytes())
    with pytest.raises(InvalidInput) as caught:
        unseal(new_home, sealed, "run x-1")
    assert str(caught.value) == (
        f"{new_home.secret_key}: does not have the key of the secrets of run x-1; add that key as "
        "another line (or run the job's file again, to supply the secrets)"
    )
    new_home.secret_key.write_bytes(other.secret_key.read_bytes() + key)
    assert unseal(new_home, sealed, "run x-1") == {"TOKEN": "a"}


def test_a_missing_key_is_named(new_home: Home) -> None:
    sealed = seal(new_home, {"TOKEN": "a"})
    new_home.secret_key.unlink()
    with pytest.raises(InvalidInput) as caught:
        unseal(new_home, sealed, "job x@1")
    assert str(caught.value) == (
        f"{new_home.secret_key} is missing; without it the secrets of job x@1 cannot be decrypted; "
        "restore it from a backup (or run the job's file again, to supply the secrets)"
    )
    assert unseal(new_home, {"a": 1}, "job x@1") == {"a": 1}
    assert not new_home.secret_key.exists(), "reading creates none"


@pytest.mark.parametrize("content", [b"", b"short\n", b"\xff" * 44])
def test_a_damaged_key_is_not_replaced(new_home: Home, content: bytes) -> None:
    new_home.prepare()
    new_home.secret_key.write_bytes(content)
    with pytest.raises(InvalidInput, match="restore it from a backup"):
        seal(new_home, {"TOKEN": "a"})
    assert new_home.secret_key.read_bytes() == content


def test_a_pipe_is_not_waited_for(new_home: Home) -> None:
    new_home.prepare()
    os.mkfifo(new_home.secret_key)
    with pytest.raises(InvalidInput, match="cannot read the key of secrets: not a regular file"):
        seal(new_home, {"TOKEN": "a"})


def test_an_empty_key_may_be_removed(new_home: Home) -> None:
    new_home.prepare()
    new_home.secret_key.touch()
    with pytest.raises(InvalidInput) as caught:
        seal(new_home, {"TOKEN": "a"})
    assert str(caught.value) == (
        f"{new_home.secret_key}: is empty, and must contain a key (restore it from a backup; "
        "without one, remove it: a new key is created, and the secrets of earlier jobs and runs "
        "are lost)"
    )
    new_home.secret_key.unlink()
    assert seal(new_home, {"TOKEN": "a"}) != {"TOKEN": "a"}


def test_a_key_that_cannot_be_read_is_reported(new_home: Home) -> None:
    new_home.secret_key.mkdir(parents=True)
    with pytest.raises(InvalidInput, match="cannot read the key of secrets: not a regular file"):
        seal(new_home, {"TOKEN": "a"})
