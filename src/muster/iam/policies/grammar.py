"""The grammar of policies and of rules, and the tokens of a line. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from lark import Lark, Token
from lark.lexer import Lexer

from muster.iam.policies.statements import KEYWORDS, WORD

_GRAMMAR = r"""
    statement: ALLOW subject TO action IN location (WHERE condition)?
    subject: GROUP member (_COMMA GROUP? member)*
           | DYNAMIC_GROUP member (_COMMA DYNAMIC_GROUP? member)*
           | SERVICE name (_COMMA name)*
           | ANY_USER
           | ANY_GROUP
    member: ID? name
    name: WORD | STRING | STRING _SLASH WORD | STRING _SLASH STRING
    ?action: WORD WORD                           -> verb
           | _LBRACE WORD (_COMMA WORD)* _RBRACE -> permissions
    location: TENANCY | COMPARTMENT ID? (WORD | STRING)
    ?condition: WORD (EQUAL | DIFFERENT | BEFORE | AFTER) value      -> one
              | WORD BETWEEN value _AND value                        -> between
              | WORD IN _LPAR value (_COMMA value)* _RPAR            -> among
              | WORD NOT IN _LPAR value (_COMMA value)* _RPAR        -> not_among
              | (ALL | ANY) _LBRACE condition (_COMMA condition)* _RBRACE -> several
    value: WORD | STRING | PATTERN

    rule: rule_condition
    ?rule_condition: WORD (EQUAL | DIFFERENT) value -> one
                   | WORD                           -> existence
                   | (ALL | ANY) _LBRACE rule_condition (_COMMA rule_condition)* _RBRACE -> several

    %declare ALLOW TO IN WHERE GROUP DYNAMIC_GROUP SERVICE ANY_USER ANY_GROUP ID TENANCY
    %declare COMPARTMENT ALL ANY NOT BEFORE AFTER BETWEEN _AND EQUAL DIFFERENT WORD STRING PATTERN
    %declare _SLASH _LBRACE _RBRACE _LPAR _RPAR _COMMA
"""
#: Quotes of word processors.
CURLY = "\u2018\u2019\u201c\u201d"
#: In the order in which they are tried. The last ones are texts that are noted and corrected.
_TOKENS = re.compile(
    rf"""
    (?P<SPACE> \s+ | (?<!\S)\#.* )
    | (?P<STRING> '[^'\n]*' | "[^"\n]*" )
    | (?P<PATTERN> /[^\s,{{}}()'"<>=/](?:[^\n,{{}}()'"<>=])*?/(?=[\s,)}}]|$) )
    | (?P<_SLASH> (?<=['"])/ )
    | (?P<DIFFERENT> != )
    | (?P<DOUBLE> == )
    | (?P<EQUAL> = )
    | (?P<_LBRACE> {{ ) | (?P<_RBRACE> }} ) | (?P<_LPAR> \( ) | (?P<_RPAR> \) ) | (?P<_COMMA> , )
    | (?P<STARRED> [\w.@+/:~%*-]*\*[\w.@+/:~%*-]* )
    | (?P<WORD> {WORD} | && | \|\| )
    | (?P<CURLY> [{CURLY}][^{CURLY}'"\n]*[{CURLY}] )
    | (?P<PLACEHOLDER> <[^<>\n]*> )
    | (?P<OPEN> ['"][^\s,{{}}()'"]* )
    | (?P<UNKNOWN> . )
    """,
    re.VERBOSE | re.DOTALL,
)
KINDS = {word: word.upper().replace("-", "_") for word in KEYWORDS} | {"and": "_AND"}
#: The text of each kind of token that has only one.
WORDS_OF = {name: word for word, name in KINDS.items()} | {
    "EQUAL": "=",
    "DIFFERENT": "!=",
    "_SLASH": "/",
    "_LBRACE": "{",
    "_RBRACE": "}",
    "_LPAR": "(",
    "_RPAR": ")",
    "_COMMA": ",",
}
#: The kind of the token after the last one.
END = "$END"


def tokens_of(line: str) -> Iterator[Token]:
    """The tokens of a line, without spaces and comments."""
    for found in _TOKENS.finditer(line):
        kind, text = str(found.lastgroup), found[0]
        if kind == "SPACE":
            continue
        if kind == "WORD":
            kind = KINDS.get(text.lower(), kind)
        yield Token(kind, text, found.start(), end_pos=found.end())


class _NoLexer(Lexer):
    """Tokens are made by `tokens_of`, since words that do not fit are tokens as well."""

    def __init__(self, _configuration: object) -> None:
        pass

    def lex(self, _state: object, _parser_state: object = None) -> Iterator[Token]:
        """No token."""
        return iter(())


@cache
def parser() -> Lark:
    """Of statements and rules: `start` is one of them."""
    return Lark(_GRAMMAR, start=["statement", "rule"], parser="lalr", lexer=_NoLexer)


def expected(accepted: set[str]) -> str:
    """What is expected, for people."""
    names = {
        "WORD": "a name",
        "STRING": "a text in quotes",
        "PATTERN": "a pattern",
        END: "the end",
    }
    known = [names.get(kind) or f"`{WORDS_OF[kind]}`" for kind in sorted(accepted)]
    return known[0] if len(known) == 1 else f"{', '.join(known[:-1])} or {known[-1]}"
