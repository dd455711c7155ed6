"""Which correction is made where a token does not fit: the first one that applies. Pure."""

from __future__ import annotations

from lark import Token

from muster.iam.policies.corrections.connectors import replace_connector
from muster.iam.policies.corrections.lists import note_second
from muster.iam.policies.corrections.missing_names import put_in_name
from muster.iam.policies.corrections.missing_words import put_in_all, put_in_word
from muster.iam.policies.corrections.misspelt_words import replace_misspelt
from muster.iam.policies.corrections.quotes_and_patterns import ODD, replace_odd
from muster.iam.policies.corrections.subjects import correct_subject
from muster.iam.policies.corrections.two_verbs import drop_verb
from muster.iam.policies.grammar import END, expected
from muster.iam.policies.token_reader import Reader, span
from muster.spec.wording import short


def correct(reader: Reader, token: Token, accepted: set[str]) -> bool:
    """See `reader.Correct`."""
    if token.type in ODD:
        return replace_odd(reader, token, accepted)
    of_subject = correct_subject(reader, token, accepted)
    if of_subject is not None:
        return of_subject
    if put_in_all(reader, token, accepted):
        return True
    if "WORD" in accepted:
        return put_in_name(reader, token, accepted)
    if replace_misspelt(reader, token, accepted) or drop_verb(reader, token, accepted):
        return True
    of_connector = replace_connector(reader, token, accepted)
    if of_connector is not None:
        return of_connector
    if note_second(reader, token, accepted):
        return False
    return put_in_word(reader, token, accepted) or _drop_sign(reader, token, accepted)


def _drop_sign(reader: Reader, token: Token, accepted: set[str]) -> bool:
    """Read on without a sign. Without a word, the line might mean another thing."""
    if token.type == END:
        text = f"the {reader.start} ends too early: {expected(accepted)} is expected"
        reader.note_missing(text)
        return False
    if token.type not in ("WORD", "STRING") and reader.fits(reader.after, []):
        start, end = span(token)
        sentence = f"{short(str(token))} is not expected here"
        reader.reading.note_at(start, end - start, sentence, has_fix=True)
        reader.reading.edit(start, end, "")
        reader.left.popleft()
        return True
    sentence = f"{short(str(token))} is not expected here: {expected(accepted)} is"
    reader.reading.note(token, sentence)
    return False
