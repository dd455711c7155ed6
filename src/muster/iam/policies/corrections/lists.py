"""Notes a list where a statement names one thing: types, compartments. Pure."""

from __future__ import annotations

from lark import Token

from muster.iam.policies.token_reader import Reader


def note_second(reader: Reader, token: Token, accepted: set[str]) -> bool:
    """A second type or compartment: whether it is one."""
    if token.type != "_COMMA" or "_COMMA" in accepted:
        return False
    hint = "write another statement for the others"
    if "IN" in accepted:
        sentence = "a statement names one type of resource"
        hint = f"{hint}, or name a family"
    elif "WHERE" in accepted:
        sentence = "a statement names one compartment"
    else:
        return False
    reader.reading.note(token, sentence, hint=hint)
    return True
