"""Corrects `and` and `or` between names or conditions. Pure."""

from __future__ import annotations

from lark import Token

from muster.iam.policies.reading import Edit
from muster.iam.policies.token_reader import Reader, span

_CONNECTORS = {"and": "all", "&&": "all", "or": "any", "||": "any"}


def replace_connector(reader: Reader, token: Token, accepted: set[str]) -> bool | None:
    """`and` or `or`: whether reading continues; None if it is another word, or is elsewhere."""
    is_after_where = any(one.type == "WHERE" for one in reader.fed)
    if token.lower() not in _CONNECTORS or not (is_after_where or "_COMMA" in accepted):
        return None
    start, end = span(token)
    reading = reader.reading
    if "_COMMA" in accepted and "TO" in accepted:
        reading.note_at(start, end - start, "names are separated by commas", has_fix=True)
        reading.edit(reader.at, end, ",")
        return reader.replace("_COMMA", ",")
    sentence = "conditions are combined as all {A, B} or any {A, B}"
    tokens = [*reader.fed, *reader.left]
    where = next((at for at, one in enumerate(tokens) if one.type == "WHERE"), len(tokens))
    several = [at for at, one in enumerate(tokens) if one.lower() in _CONNECTORS]
    words = {_CONNECTORS[tokens[at].lower()] for at in several}
    is_nested = {one.type for one in tokens} & {"_LBRACE", "BETWEEN"}
    if several[0] <= where + 1 or len(words) > 1 or is_nested:
        reading.note(token, sentence, hint="write all {A, B} for A and B")
        return False
    reading.note_at(start, end - start, sentence, has_fix=True)
    for at in several:
        reading.edit(span(tokens[at - 1])[1], span(tokens[at])[1], ",")
    first, last = span(tokens[where + 1])[0], span(reader.end)[1]
    reading.edits += (Edit(first, first, f"{words.pop()} {{"), Edit(last, last, "}"))
    return False
