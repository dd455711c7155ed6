"""The secrets of projects: encrypted with the key of MUSTER_HOME. Runs get them when they start, so
that what is prepared, and shown to who prepares it, has no values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec.structs import replace

from muster.errors import InvalidInput, Problem
from muster.service.context import Context
from muster.spec.secret_names import stored_secrets
from muster.spec.wording import close_to
from muster.storage.home import Home
from muster.storage.sealing import seal, unseal

if TYPE_CHECKING:
    from muster.plan.model import RunPlan
    from muster.spec.models import JobSpec

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


def missing_secrets(context: Context, spec: JobSpec) -> Iterator[Problem]:
    """A problem for each secret that a job uses and neither it nor its project has."""
    if not (used := stored_secrets(spec)):
        return
    known = [one.name for one in context.store.secrets.listing(context.project)]
    for name, path in used.items():
        if name not in known:
            text = f"no secret {name} in the job, nor in project {context.project}"
            near = close_to(name, [*spec.secrets, *known], 1)
            hint = f"`muster secrets set {name}` stores it"
            yield Problem(path, text, f"did you mean {near[0]}? {hint}" if near else hint)


def with_secrets(context: Context, spec: JobSpec, plan: RunPlan) -> RunPlan:
    """The plan with the values of the project's secrets that the job uses. Raises InvalidInput if
    one was deleted meanwhile, or as `unseal`."""
    if not (used := stored_secrets(spec)):
        return plan
    if problems := [*missing_secrets(context, spec)]:
        raise InvalidInput(*problems)
    sealed = context.store.secrets.values(context.project, used)
    values = {name: unseal(context.home, text, f"secret {name}") for name, text in sealed.items()}
    return replace(plan, secrets={**plan.secrets, **values})
