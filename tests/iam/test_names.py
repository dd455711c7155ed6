"""Names of users, groups, projects, policies and secrets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.errors import InvalidInput
from muster.escapes import visible_line
from muster.iam.names import check_name, check_text


@pytest.mark.parametrize(
    ("kind", "name", "valid"),
    [
        ("user", "ana", True),
        ("user", "ana.lopez@example.com", True),
        ("user", "A-1_b", True),
        ("user", "@ana", False),
        ("user", "", False),
        ("user", "ana lopez", False),
        ("user", "añá", False),
        ("user", "a" * 100, True),
        ("user", "a" * 101, False),
        ("user", "ana\n", False),
        ("project", "vision-2", True),
        ("project", "a@b", False),
        ("project", "../x", False),
        ("secret", "HF_TOKEN", True),
        ("secret", "_x", True),
        ("secret", "hf.token-2", True),
        ("secret", "hf token", False),
        ("secret", "-x", False),
        ("secret", "a}", False),
        ("policy", "-job.runs_2", True),
        ("policy", "job runs", False),
        ("group", "_trainers", True),
        ("group", "a" * 101, False),
        ("dynamic group", ".robots", True),
        ("dynamic group", "robots'", False),
    ],
)
def test_names(kind: str, name: str, valid: bool) -> None:
    if valid:
        assert check_name(kind, name) == name
    else:
        with pytest.raises(InvalidInput, match=f"is not a valid name of a {kind}"):
            check_name(kind, name)


@given(st.text())
def test_a_text_is_kept_or_refused_on_one_line(text: str) -> None:
    try:
        assert check_text("description", text) == text
    except InvalidInput as error:
        assert len(str(error).splitlines()) == 1
        assert visible_line(text) != text or len(text) > 500
    else:
        assert visible_line(text) == text
