"""The setting MUSTER_ISOLATION."""

from __future__ import annotations

import pytest

from muster.engines.local.namespaces import check_setting


@pytest.mark.parametrize(
    ("setting", "problems"),
    [
        ("", []),
        ("plain", []),
        ("namespaces", []),
        (
            "plian",
            [
                "MUSTER_ISOLATION: unknown isolation 'plian' "
                '("plain" for none; unset it for namespaces where the kernel allows them)'
            ],
        ),
    ],
)
def test_an_unknown_isolation_is_refused(
    setting: str, problems: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MUSTER_ISOLATION", setting)
    assert [str(problem) for problem in check_setting()] == problems
