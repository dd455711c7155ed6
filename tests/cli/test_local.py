"""Commands that work only on the machine of the jobs and runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.command import muster


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["env", "list"], "environments are listed"),
        (["env", "prune"], "environments are deleted"),
        (["engines", "add", "hosts", "--host", "gpu1"], "engines are added"),
        (["engines", "remove", "hosts"], "engines are removed"),
    ],
)
def test_what_a_server_does_not_do_is_refused(
    own_home: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], what: str
) -> None:
    monkeypatch.setenv("MUSTER_URL", "https://muster.example")
    assert muster(*words, code=2).stderr == (
        f"error: {what} on the machine of the server https://muster.example, not over its API "
        "(run the command there; for this machine, unset MUSTER_URL)\n"
    )
    assert not (own_home / "engines").exists()
