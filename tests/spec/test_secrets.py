from __future__ import annotations

import pytest

from muster.spec.secrets import HIDDEN, hidden, hide


@pytest.mark.parametrize(
    "name",
    ["HF_TOKEN", "aws_secret_access_key", "DB_PASSWORD", "PASSWD", "OPENAI_API_KEY", "APIKEY"],
)
def test_secrets_are_known_by_their_names(name: str) -> None:
    assert hide(name, "x") == HIDDEN
    assert hide(name, "") == "", "that nothing was given is no secret"


@pytest.mark.parametrize("name", ["PATH", "OMP_NUM_THREADS", "KEYBOARD", "MASTER_ADDR"])
def test_others_are_shown(name: str) -> None:
    assert hide(name, "x") == "x"


def test_hidden_however_deep() -> None:
    data = {
        "env": {"A": "1", "A_TOKEN": "2"},
        "node_groups": [{"name": "TOKEN", "env": {"B_TOKEN": "3"}, "node_env": {"C_TOKEN": "4"}}],
        "args": ("TOKEN",),
    }
    assert hidden(data) == {
        "env": {"A": "1", "A_TOKEN": HIDDEN},
        "node_groups": [
            {"name": "TOKEN", "env": {"B_TOKEN": HIDDEN}, "node_env": {"C_TOKEN": HIDDEN}}
        ],
        "args": ["TOKEN"],
    }
