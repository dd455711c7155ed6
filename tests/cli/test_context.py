"""Where commands go: `muster login`, `context` and `logout`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.service.backend import Backend
from muster.storage.home import Home
from support.command import muster
from support.server_thread import TOKEN, ServerThread, running_server

pytestmark = pytest.mark.embedded("the commands choose the server themselves")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerThread]:
    with running_server(Backend(Home(tmp_path_factory.mktemp("team")))) as running:
        yield running


@pytest.fixture
def url(server: ServerThread, monkeypatch: pytest.MonkeyPatch) -> str:
    for name in ("MUSTER_URL", "MUSTER_TOKEN", "MUSTER_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    return f"http://127.0.0.1:{server.port}"


def test_a_login_sends_commands_to_the_server_until_another_context_is_used(
    url: str, own_home: Path
) -> None:
    done = muster("login", url, "--name", "lab", "--token-stdin", input=TOKEN)
    assert f"logged in to {url} as " in done.stderr
    shown = json.loads(muster("context", "show", "--json").stdout)
    assert (shown["name"], shown["server"]) == ("lab", url)
    assert "submit" in shown["rights"]
    assert (own_home / "contexts.json").stat().st_mode & 0o777 == 0o600

    muster("context", "use", "local")
    listed = json.loads(muster("context", "list", "--json").stdout)
    assert [(one["name"], one["current"]) for one in listed] == [("local", True), ("lab", False)]
    assert json.loads(muster("context", "show", "--json").stdout)["name"] == "local"


def test_the_environment_comes_before_the_chosen_context(
    url: str, own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MUSTER_URL", url)
    monkeypatch.setenv("MUSTER_TOKEN", TOKEN)
    table = muster("context", "list").stdout.splitlines()
    assert table[1].split() == ["local", "this", "machine"]
    assert table[2].split() == ["*", "MUSTER_URL", url]
    assert muster("context", "show").stdout.splitlines()[1].startswith(f"MUSTER_URL  {url}")


def test_after_a_logout_commands_use_this_machine(url: str, own_home: Path) -> None:
    muster("login", url, "--name", "lab", "--token-stdin", input=TOKEN)
    assert muster("logout").stderr == "forgot lab; commands use this machine now\n"
    assert "lab" not in (own_home / "contexts.json").read_text()
    assert muster("logout", code=2).stderr == "error: you are not logged in to a server\n"


def test_a_refused_token_changes_nothing(url: str, own_home: Path) -> None:
    done = muster("login", url, "--token-stdin", input="muster_wrong")
    assert done.returncode != 0
    assert f"{url} refuses the token" in done.stderr
    assert not (own_home / "contexts.json").exists()


def test_a_file_of_authorities_that_is_of_no_use(url: str, own_home: Path, tmp_path: Path) -> None:
    secure = url.replace("http:", "https:")
    empty = tmp_path / "empty.pem"
    empty.write_text("nothing\n")
    for file, why in (
        (tmp_path / "absent.pem", "No such file or directory"),
        (empty, "it has no certificate in PEM"),
    ):
        done = muster("login", secure, "--ca", str(file), "--token-stdin", input=TOKEN)
        assert done.returncode == 2
        assert f"error: --ca: cannot read {file}, " in done.stderr
        assert why in done.stderr
