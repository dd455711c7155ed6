"""The secrets of projects: encrypted with the key of MUSTER_HOME, used by runs when they start."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from muster.errors import InvalidInput, Problem
from muster.storage.home import Home
from muster.storage.sealing import seal, unseal

if TYPE_CHECKING:
    from muster.store.base import Secrets

#: Bytes of a value (Kubernetes allows 1 MiB for all values of a Secret).
_LARGEST = 1 << 16


def sealed_secret(home: Home, name: str, value: str) -> str:
    """The value as it is stored. Raises InvalidInput: it is empty or too large, or the key cannot
    be read or created."""
    if not value:
        raise InvalidInput(Problem("", f"the value of the secret {name} is empty"))
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        text = f"the value of the secret {name} is not text"
        raise InvalidInput(Problem("", text, "encode it, such as with base64")) from None
    if "\0" in value:
        text = f"the value of the secret {name} has a NUL character, which no variable can have"
        raise InvalidInput(Problem("", text, "encode it, such as with base64"))
    if size > _LARGEST:
        text = f"the value of the secret {name} has {size:,} bytes, {_LARGEST:,} are allowed"
        raise InvalidInput(Problem("", text))
    # `seal` encrypts all values of a field with this name
    sealed: str = seal(home, {"secrets": {name: value}})["secrets"][name]
    return sealed


def secret_values(
    home: Home, secrets: Secrets, project: str, names: Collection[str]
) -> dict[str, str]:
    """The values of secrets of a project by name, of those that there are. Raises InvalidInput as
    `unseal`."""
    sealed = secrets.values(project, names)
    return {name: unseal(home, text, f"secret {name}") for name, text in sealed.items()}


def missing_secrets(secrets: Secrets, project: str, used: Mapping[str, str]) -> Iterable[Problem]:
    """A problem for each secret that a project lacks. used: by name, where it is used."""
    if not used:
        return
    known = {one.name for one in secrets.listing(project)}
    for name, path in used.items():
        if name not in known:
            text = f"the job has no secret {name}, and neither has project {project}"
            yield Problem(path, text, f"`muster secrets set {name}` stores it")
