"""Corrects who a statement is about: nobody, a single user, `all users`. Pure."""

from __future__ import annotations

from lark import Token

from muster.iam.policies.token_reader import Reader

_NOT_SUBJECTS = {
    "resource": (
        "`resource TYPE NAME` is not supported as a subject",
        "use a dynamic group, or any-user with a condition on request.principal.type",
    ),
    "user": (
        "a statement is about groups, not about single users",
        "put the user into a group, or use any-user with a condition on request.user.name",
    ),
}


def correct_subject(reader: Reader, token: Token, accepted: set[str]) -> bool | None:
    """Whether reading continues; None if the token is about something else."""
    if "ANY_USER" in accepted and token.lower() in _NOT_SUBJECTS:
        sentence, hint = _NOT_SUBJECTS[token.lower()]
        reader.reading.note(token, sentence, hint=hint)
        return False
    if "ANY_USER" in accepted and token.type == "ALL" and reader.after.lower() == "users":
        return reader.join(token, "ANY_USER", "any-user", "all users are")
    if "GROUP" in accepted and reader.fits(token, [Token("ANY_USER", "any-user")]):
        reader.note_missing("the subject is missing", token)
        reader.insert("group GROUP_NAME")
        return reader.feed(Token("ANY_USER", "any-user"))
    return None
