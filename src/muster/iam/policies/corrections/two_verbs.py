"""Corrects two verbs in a row, such as `use read`. Pure."""

from __future__ import annotations

from lark import Token

from muster.iam.policies.token_reader import Reader, span
from muster.iam.policies.vocabulary import VERBS


def drop_verb(reader: Reader, token: Token, accepted: set[str]) -> bool:
    """Two verbs in a row: whether there are. The second one is the more specific of what people
    mean."""
    if "IN" not in accepted or token.type != "WORD" or len(reader.fed) < 2:
        return False
    first, second = reader.fed[-2:]
    if second.lower() not in VERBS or first.type != "WORD":
        return False
    sentence = f"`{first} {second}` are two verbs; a statement has one"
    start, end = span(first)[0], span(second)[1]
    reader.reading.note_at(start, end - start, sentence, has_fix=True)
    reader.reading.edit(start, span(second)[0], "")
    reader.reading.settle(first)
    reader.reading.settle(second)
    reader.left.popleft()
    reader.fed.append(token)
    return True
