"""The guide about users, typed by an administrator of a real server, with a real issuer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from urllib.parse import urlsplit

import pytest

from muster.storage.home import Home
from support.oidc_issuer import RealIssuer, running_issuer
from support.pages import read_page, type_commands
from support.server_process import ServerProcess, admin_token

SERVER, ISSUER = "https://muster.example.org", "https://id.example.org"
#: As root, too, programs run as the user of the test, whom Python is readable for.
SETTINGS = "separate_owners = false\n"


@contextmanager
def allowed(issuer: RealIssuer) -> Iterator[None]:
    """Who is asked to log in on another device, does."""
    done = Event()

    def allow() -> None:
        while not done.wait(0.05):
            issuer.decide(True)

    thread = Thread(target=allow)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@pytest.fixture
def issuer() -> Iterator[RealIssuer]:
    with running_issuer() as made:
        made.interval = 0.0
        # another person than the one who was added
        made.person = {**made.person, "preferred_username": "cleo", "sub": "user-8"}
        with allowed(made):
            yield made


def test_the_commands_of_the_guide_work(
    tmp_path: Path, own_home: Path, issuer: RealIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """own_home: of the laptop."""
    monkeypatch.delenv("MUSTER_URL", raising=False)
    page, folder, results = read_page("docs/guides/users.md"), tmp_path / "own", tmp_path / "typed"
    home = tmp_path / "server"
    for one in (folder, results, home):
        one.mkdir()
    (home / "server.toml").write_text(SETTINGS)
    (home / "oidc.toml").write_text(page.files["oidc.toml"].replace(ISSUER, issuer.url))
    token = admin_token(Home(home))
    with ServerProcess(Home(home)) as server:
        address = server.address(token)
        # the first login asks for a token on the terminal
        words = {
            f"muster login {SERVER}": f"MUSTER_TOKEN={address.token} muster login {SERVER}",
        }
        commands = []
        for command in page.commands:
            text = words.pop(command.text, command.text)
            text = text.replace("use muster.example.org", f"use {urlsplit(address.url).netloc}")
            text = text.replace(SERVER, address.url).replace(ISSUER, issuer.url)
            output = [line.replace(ISSUER, issuer.url) for line in command.output]
            output = [line for line in output if not line.endswith("the code ...")]
            commands.append(command._replace(text=text, output=output))
        assert not words
        type_commands(page, commands, folder, results)
    printed = {c.text: (results / f"{n}.out").read_text() for n, c in enumerate(commands)}
    (login,) = (text for words, text in printed.items() if "by-code" in words)
    assert f"log in at {issuer.url}/activate with the code " in login
    assert "as cleo, in project vision" in login
    (audit,) = (text for words, text in printed.items() if "audit list" in words)
    assert "runs.start" in audit
