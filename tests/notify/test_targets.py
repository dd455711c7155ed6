"""What users write as a target."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.errors import InvalidInput
from muster.notify.targets import TargetKind, parse_target


@pytest.mark.parametrize(
    ("text", "kind", "shown"),
    [
        ("https://example.com/a/b?c=d", "webhook", "https://example.com/..."),
        ("https://ana:pw@example.com:8443/", "webhook", "https://example.com:8443/"),
        ("HTTP://[::1]:80/x", "webhook", "http://[::1]:80/..."),
        ("mailto:ana@example.com, b@x.org", "email", "mailto:ana@example.com,b@x.org"),
        ("file:/var/log/events.jsonl", "file", "file:/var/log/events.jsonl"),
        ("file:///var/log/events.jsonl", "file", "file:/var/log/events.jsonl"),
        ("command:page", "command", "command:page"),
        ("nats://u:p@broker:4222/muster.events", "nats", "nats://broker:4222/muster.events"),
        ("kafka://broker/muster-events", "kafka", "kafka://broker/muster-events"),
    ],
)
def test_a_target_is_read(text: str, kind: str, shown: str) -> None:
    target = parse_target(text)
    assert (target.kind, target.shown) == (kind, shown)
    assert parse_target(target.text) == target  # as it is stored


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("example.com", "is not a target"),
        ("ftp://example.com/x", "is not a target"),
        ("https://", "names no host"),
        ("https://[::1/x", "is not a URL"),
        ("https://example.com:99999/", "is not a URL"),
        ("https://example.com/#a", "has a fragment"),
        ("https://example.com/ü", "has characters that a URL cannot have"),
        ("https://example.com/a b", "has characters that a URL cannot have"),
        ("https://example.com/\r\nHost: x", "cannot be printed"),
        ("https://example.com/" + "a" * 3000, "is longer than"),
        ("mailto:", "is not an address of e-mail"),
        ("mailto:ana", "'ana' is not an address of e-mail"),
        ("mailto:a@b.c?cc=d@e.f", "is not an address of e-mail"),
        ("file:events.jsonl", "is not the absolute path of a file"),
        ("file:/a/../b", "is not the absolute path of a file"),
        ("file:/a/", "is not the absolute path of a file"),
        ("command:../../bin/sh", "is not the name of a command"),
        ("nats://broker/", "names no subject"),
        ("kafka://broker/a%20b", "names no topic"),
    ],
)
def test_what_is_no_target_is_refused(text: str, why: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_target(text)
    (problem,) = caught.value.problems
    assert problem.path == "target"
    assert why in problem.message


@given(st.text(max_size=60) | st.from_regex(r"(https?|mailto|file|nats):[ -~]{0,40}"))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        target = parse_target(text)
    except InvalidInput:
        return
    assert parse_target(target.text) == target
    if target.kind == TargetKind.WEBHOOK:
        assert target.url.path.strip("/") == "" or target.url.path not in target.shown
