"""Corrects names and values that are missing, or that are words of the language. Pure."""

from __future__ import annotations

from lark import Token

from muster.iam.policies.corrections.misspelt_words import replace_misspelt
from muster.iam.policies.grammar import END, KINDS
from muster.iam.policies.statements import in_quotes
from muster.iam.policies.token_reader import Reader
from muster.iam.policies.vocabulary import FAMILIES, OTHER_TYPES, TYPES, VERBS
from muster.spec.wording import short

_RESOURCES = frozenset({*TYPES, *FAMILIES, *OTHER_TYPES})


def put_in_name(reader: Reader, token: Token, accepted: set[str]) -> bool:
    """A name or a value is expected: it is missing, or is a word of the language."""
    reading = reader.reading
    kind = "STRING" if "PATTERN" in accepted else "WORD"
    if reader.fits(token, [Token(kind, "x")]):
        what, text = _missing(reader, accepted)
        before = reader.fed[-1] if reader.fed else token
        if "STRING" not in accepted and before.lower() in _RESOURCES:
            reader.note_missing(f"the verb before `{before}` is missing", at=before)
            reader.insert(f"{VERBS[0]} ", at=before)
            reading.settle(before)
            return reader.feed(Token("WORD", "x"))
        reader.note_missing(f"{what} is missing", token)
        if text:
            reader.insert(text)
        return reader.feed(Token(kind, in_quotes("x") if kind == "STRING" else "x"))
    if token.type == "ALL" and reader.after.lower() == "resources":
        return reader.join(token, "WORD", "all-resources", "all resources are")
    is_name = token.lower() in KINDS and "STRING" in accepted
    if is_name and reader.fits(reader.after, [Token("WORD", "x")]):
        sentence = f"`{token}` is a word of the language; as a name, it is in quotes"
        reading.note(token, sentence, in_quotes(str(token)))
        return reader.replace("STRING", "'x'")
    if replace_misspelt(reader, token, accepted):
        return True
    what, _ = _missing(reader, accepted)
    if token.type == END:
        reader.note_missing(f"{what} is missing")
    else:
        reading.note(token, f"{what} is expected here, not {short(str(token))}")
    return False


def _missing(reader: Reader, accepted: set[str]) -> tuple[str, str]:
    """What is missing where a word is expected, and what stands for it in the correction."""
    before = reader.fed[-1] if reader.fed else None
    kind = before.type if before is not None else ""
    if "PATTERN" in accepted:
        variable = next((one for one in reversed(reader.fed) if one.type == "WORD"), "")
        return f"the value of {variable}", "'VALUE'"
    if kind == "ID":
        return "the OCID after `id`", "OCID"
    if kind == "COMPARTMENT":
        return "the name of the compartment", "COMPARTMENT_NAME"
    if "STRING" in accepted:
        subject = next(
            (one for one in reader.fed if one.type in ("GROUP", "DYNAMIC_GROUP", "SERVICE")),
            "group",
        )
        return f"the name after `{subject}`", f"{subject.upper().replace('-', '_')}_NAME"
    if kind == "TO":
        return "the verb and the type of resource", ""
    if kind == "WORD":
        return f"the type of resource after `{before}`", ""
    if kind == "_LBRACE" and reader.fed[-2:-1] and reader.fed[-2].type == "TO":
        return "the name of a permission", ""
    return "a condition", ""
