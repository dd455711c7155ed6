"""Corrects quotes, patterns, placeholders and `==` that are written as elsewhere. Pure."""

from __future__ import annotations

import re

from lark import Token

from muster.iam.policies.grammar import CURLY
from muster.iam.policies.statements import in_quotes
from muster.iam.policies.token_reader import Reader
from muster.iam.policies.vocabulary import VERBS
from muster.spec.wording import short

#: Types of tokens that fit nowhere.
ODD = frozenset({"STARRED", "CURLY", "PLACEHOLDER", "OPEN", "DOUBLE"})


def replace_odd(reader: Reader, token: Token, accepted: set[str]) -> bool:
    """A text that is no token: what was meant, if there is place for it."""
    reading = reader.reading
    inner = token.strip(f"{CURLY}<>'\"").strip()
    before = reader.fed[-1].lower() if reader.fed else ""
    if token == "*" and before in VERBS and "WORD" in accepted:
        reading.note(token, "all resources are `all-resources`", "all-resources")
        return reader.replace("WORD", "all-resources")
    if token.type == "DOUBLE":
        kind, fix, sentence = "EQUAL", "=", "one `=` compares"
    elif token.type == "STARRED":
        kind, fix = "PATTERN", f"/{inner.strip('/')}/"
        sentence = "a pattern is between slashes"
    elif token.type == "PLACEHOLDER":
        kind, fix = "STRING", re.sub(r"\W+", "_", inner).upper() or "NAME"
        sentence = f"{short(str(token))} is a placeholder: write what it stands for"
        if "PATTERN" in accepted:
            fix = in_quotes(fix)
    elif token.type == "CURLY":
        kind, fix = "STRING", in_quotes(inner)
        sentence = "quotes are ' or \""
    else:
        kind, fix = "STRING", in_quotes(inner or "VALUE")
        sentence = "the quote is not closed"
    if kind not in accepted and not ("WORD" in accepted and kind == "STRING"):
        reading.note(token, f"{short(str(token))} is not expected here")
        return False
    reading.note(token, sentence, fix)
    return reader.replace(kind if kind in accepted else "WORD", "'x'")
