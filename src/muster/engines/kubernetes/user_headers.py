"""The headers with which a user of kubectl's configuration logs in, and acts as somebody else."""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Callable, Mapping
from urllib.parse import quote

from muster.engines.kubernetes.auth_providers import provider_token
from muster.engines.kubernetes.kubeconfig import Context, Entry
from muster.engines.kubernetes.plugins import Issued, run_plugin
from muster.engines.kubernetes.tokens import NO_HEADER, TokenFile, bearer, is_header

_NO_TOKEN = f"gives a token that {NO_HEADER}"
#: What the name of a header can have beside letters, digits and `-._~`; but for `%`, which begins
#: what it cannot have.
_IN_NAME = "!#$&'*+^`|"


def login(
    files: str, context: Context, environ: Mapping[str, str]
) -> tuple[Callable[[], str], Issued]:
    """The `authorization` of a context's user, as `access.Credentials` has it, and what a plug-in
    has issued. The first that the user has of these ways, as in kubectl. Raises CannotCall."""
    user, issued, header = context.user, Issued(), ""
    token = user.text("token")
    if token and not token.strip():
        raise user.wrong("token", "is empty")
    header = bearer(token, user.wrong("token", NO_HEADER))
    if path := user.path("tokenFile"):
        return TokenFile(path, header).authorization, issued
    if header:
        return lambda: header, issued
    if name := user.text("username"):
        words = f"{name}:{user.text('password')}".encode(errors="replace")
        header = f"Basic {b64encode(words).decode()}"
    elif user.part("auth-provider") is not None:
        token = provider_token(files, context)
        header = bearer(token, user.wrong("auth-provider", _NO_TOKEN))
    elif (plugin := user.part("exec")) is not None:
        issued = run_plugin(user, plugin, context.cluster, _for_plugin(environ))
        header = bearer(issued.token, user.wrong("exec", _NO_TOKEN))
    return lambda: header, issued


def _for_plugin(environ: Mapping[str, str]) -> dict[str, str]:
    """Plug-ins are also found where this process finds programs: the variables of a server's nodes
    may have another PATH."""
    paths = dict.fromkeys(one for one in (environ.get("PATH"), os.environ.get("PATH")) if one)
    return {**environ, "PATH": os.pathsep.join(paths) or os.defpath}


def impersonation(user: Entry) -> list[tuple[str, str]]:
    """The headers that say as whom a user acts. Raises CannotCall."""
    every = [("as", "User", user.text("as")), ("as-uid", "Uid", user.text("as-uid"))]
    every += [("as-groups", "Group", one) for one in user.texts("as-groups")]
    if (extra := user.part("as-user-extra")) is not None:
        for name in extra.fields:
            header = f"Extra-{quote(str(name), safe=_IN_NAME)}"
            every += [("as-user-extra", header, one) for one in extra.texts(name)]
    given = [one for one in every if one[2]]
    for field, _, value in given:
        if not is_header(value):
            raise user.wrong(field, NO_HEADER)
    if given and given[0][0] != "as":
        raise user.wrong(given[0][0], "has no effect without `as`: say there as whom to act")
    return [(f"Impersonate-{header}", value) for _, header, value in given]
