"""Corrects keywords and signs that are missing. Pure."""

from __future__ import annotations

from lark import Token

from muster.iam.policies.grammar import WORDS_OF
from muster.iam.policies.token_reader import Reader

#: What is put in where one of them alone makes the next token fit, in this order.
_INSERTED = (
    *("TO", "IN", "WHERE", "ALLOW", "_RBRACE", "_RPAR", "EQUAL", "_COMMA", "_AND"),
    *("GROUP", "ALL", "_LBRACE", "_LPAR", "COMPARTMENT"),
)


def put_in_word(reader: Reader, token: Token, accepted: set[str]) -> bool:
    """A keyword or a sign is missing before the token: whether it is."""
    after = reader.after
    for kind in _INSERTED:
        before = [Token(kind, WORDS_OF[kind])]
        if kind == "WHERE":  # a word after the location may be anything else
            fits = reader.fits(after, [*before, token])
        else:
            fits = reader.fits(token, before)
        if kind in accepted and fits:
            word = WORDS_OF[kind]
            reader.note_missing(f"`{word}` is missing", token, has_fix=True)
            reader.insert(word)
            return reader.feed(Token(kind, word))
    return False


def put_in_all(reader: Reader, token: Token, accepted: set[str]) -> bool:
    """`all` or `any` is missing before a brace: whether it is."""
    if "ALL" not in accepted or token.type != "_LBRACE":
        return False
    reader.note_missing("`all` or `any` is missing", token)
    reader.insert("all")
    return reader.feed(Token("ALL", "all"))
