"""Corrects words that are like a keyword, or that people write for one. Pure."""

from __future__ import annotations

from lark import Token

from muster.iam.policies.grammar import KINDS, WORDS_OF
from muster.iam.policies.token_reader import Reader
from muster.spec.wording import close_to, short

#: Words that people write for keywords.
_MEANT = {
    **dict.fromkeys(("if", "when", "with"), "where"),
    **dict.fromkeys(("on", "at", "within", "inside"), "in"),
    **dict.fromkeys(("project", "projects", "compartments"), "compartment"),
    **dict.fromkeys(("grant", "permit"), "allow"),
    **dict.fromkeys(("users", "everyone", "everybody", "anyone"), "any-user"),
}


def replace_misspelt(reader: Reader, token: Token, accepted: set[str]) -> bool:
    """A word that is like a keyword that is expected: whether it is one."""
    if token.type != "WORD":
        return False
    words = [WORDS_OF[kind] for kind in accepted if kind in WORDS_OF]
    words = [word for word in words if word.isascii() and word[0].isalpha()]
    meant = _MEANT.get(token.lower(), "")
    if meant not in words:
        meant = next(iter(close_to(token, words, 1, 0.75)), "")
    if not meant:
        return False
    sentence = f"{short(str(token))} is not expected here; did you mean `{meant}`?"
    reader.reading.note(token, sentence, meant)
    return reader.replace(KINDS[meant], meant)
