"""What of a program's output reaches a terminal."""

from __future__ import annotations

import pytest

from muster.program_text import final_lines, harmless, without_controls


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        (b"a\nb\n", b"a\nb\n"),
        (b" 10%\r 50%\r100%\n", b"100%\n"),
        (b"dos\r\nlines\r\n", b"dos\nlines\n"),
        (b"bar\r\r\n", b"bar\n"),
        (b"bar\r   \rnext\nplain\n", b"next\nplain\n"),
        (b"\r\n", b"\n"),
    ],
)
def test_the_last_text_of_an_overwritten_line_is_shown(written: bytes, shown: bytes) -> None:
    assert final_lines(written) == shown


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("tab\t日本\n".encode(), "tab\t日本\n".encode()),
        (b"\x1b[1;31mred\x1b[0m\nplain\n", b"\x1b[1;31mred\x1b[0m\x1b[0m\nplain\n"),
        (b"\x1b[31mstays red\nnext\n", b"\x1b[31mstays red\x1b[0m\nnext\n"),
        (b"a\x1b[Aup\x1b[2Jclear\n", b"aupclear\n"),
        (b"\x1b]0;title\x07a\x1b]8;;http://x\x1b\\link\n", b"alink\n"),
        (b"\x1b]0;without end\nnext\n", b"\nnext\n"),
        (b"\x1b(0\x0ebox\x0f\x1bM\x07\x08\x7f\n", b"box\n"),
        (b"\x1b\n", b"\n"),
        ("a\x9b2Jb\x9b\nc\x85\n".encode(), b"ab\nc\n"),
        ("a\x9d0;title é\x9cb\x9d0;é\x07c\x90without end\nd\n".encode(), b"abc\nd\n"),
        ("\x1b]0;title é\x9clink\n".encode(), b"link\n"),
        ("\u202egnp.exe\u202c \u2066a\u2069\n".encode(), b"gnp.exe a\n"),
        (
            "é à £ “a” … 💾 👩\u200d🚀 \u00a0\n".encode(),
            "é à £ “a” … 💾 👩\u200d🚀 \u00a0\n".encode(),
        ),
    ],
)
def test_a_terminal_gets_colours_only(written: bytes, shown: bytes) -> None:
    assert harmless(written) == shown
    assert without_controls(shown) == without_controls(written)
