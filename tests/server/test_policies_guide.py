"""The walk of the page about policies, typed by an administrator of a real server."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import pytest

from muster.storage.home import Home
from support.pages import ROOT, read_page, type_commands
from support.server_process import ServerProcess, admin_token

PAGE, SERVER = "docs/policies.md", "https://muster.example.org"
WALK = "## From a new teammate"
#: As root, too, programs run as the user of the test, whom Python is readable for.
SETTINGS = "separate_owners = false\n"
#: What is refused, by which statement something is allowed, and so on: what commands print.
PRINTED = {
    "explain --as ben --can DATA_SCIENCE_JOB_CREATE": "by train#1: Allow group train-users",
    "explain --as ben --can read --on secrets": (
        "would be allowed by: Allow group train-users to read secrets in compartment "
        "research:vision\n"
    ),
    "explain --as run:vision/train-2": "by train#4: Allow dynamic-group train-runs to read objects",
    "explain --as ben --can OBJECT_READ": "refused: ben in compartment vision-data: OBJECT_READ",
    "policies history train": "  + Allow dynamic-group train-runs to read objects",
    "audit list": "runs.start",
}


def test_the_commands_of_the_walk_work(
    tmp_path: Path, own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """own_home: of the laptop."""
    monkeypatch.delenv("MUSTER_URL", raising=False)
    page, folder, results = read_page(PAGE), tmp_path / "own", tmp_path / "typed"
    home = tmp_path / "server"
    for one in (folder, results, home, tmp_path / "user"):
        one.mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "user"))  # where the clients of OCI look
    (home / "server.toml").write_text(SETTINGS)
    token = admin_token(Home(home))
    with ServerProcess(Home(home)) as server:
        address = server.address(token)
        commands = []
        for command in page.commands:
            text = command.text
            if text == f"muster login {SERVER}":  # it asks for a token on the terminal
                text = f"MUSTER_TOKEN={address.token} {text}"
            if "--as ben --can read" in text or "--as ben --can OBJECT" in text:
                text = f"! {text}"
            text = text.replace("use muster.example.org", f"use {urlsplit(address.url).netloc}")
            commands.append(command._replace(text=text.replace(SERVER, address.url)))
        type_commands(page, commands, folder, results)
    printed = {one.text: (results / f"{n}.out").read_text() for n, one in enumerate(commands)}
    for words, expected in PRINTED.items():
        (text,) = (text for line, text in printed.items() if words in line)
        assert expected in text, text
    policy = (folder / "train.policy").read_text().splitlines()
    walk = (ROOT / PAGE).read_text().partition(WALK)[2].splitlines()
    assert [one for one in walk if one.startswith("Allow ")] == [
        one for one in policy if one.startswith("Allow ")
    ]
