"""Why a cluster, or the way to it, did not do what was requested, for people. Pure.

Refusals come as a Status with one text, sometimes with `details.causes`, sometimes with several
causes in the text: those of the API server in brackets, those of webhooks in lines. Each is a
sentence here, about the job if it is known which of its fields is meant.

Whoever runs a webhook writes these texts, and they may be megabytes: only their beginnings are
read, and no expression here takes more than linear time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from muster.engines.kubernetes.spec_paths import spec_path

#: What may end a line with a cause.
_ENDS = " \t,;"
#: Statuses that pass by themselves. 408: a request took too long.
PASSING = frozenset({408, 429, 500, 502, 503, 504})
#: Seconds that are waited at most where the cluster says how long to wait.
LONGEST_WAIT = 60.0
#: The longest text read or reported, and the most `details.causes` read.
LONGEST_TEXT, _MOST_CAUSES = 8192, 100
#: Where one cause ends in a line with several, and a path starts in it.
_NEXT_CAUSE = re.compile(r", (?=(?:<nil>|(?:spec|metadata|status)[.\[\w][^ :]*): )")
_PATH = re.compile(r"(<nil>|\.?(?:spec|metadata|status)[.\[\w][^ :]*): (.*)", re.DOTALL)
_WEBHOOK = re.compile(
    r'admission webhook "([^"]+)" denied the request(?: without explanation)?:? ?'
)
_INVALID = re.compile(r'(?<!\S)\S+ "[^"]*" is invalid: ')
_STRICT = re.compile(r'(unknown|duplicate) field "([^"]+)"')
_TYPED = re.compile(
    r"failed to create typed (?:patch )?object \([^)]{0,400}\)(?:; [^:]{0,100})?: (?:errors:)?"
)
_CONFLICT = re.compile(r'conflict with "([^"]+)"')
_NO_RIGHT = re.compile(
    r'User "([^"]*)" cannot (\S+) resource "([^"]+)" in API group "([^"]*)"'
    r'(?: in the namespace "([^"]*)")?'
)
_SILENT_WEBHOOK = re.compile(
    r'failed (?:calling|to call) webhook "?([^":]{1,300})"?: (.*)', re.DOTALL
)
#: What divides a text about a quota that is exceeded.
_QUOTA = "exceeded quota: ", ", requested: ", ", used: ", ", limited: "
_SECURITY = re.compile(r'violates PodSecurity "([^"]+)": (.*)', re.DOTALL)
_NOT_FOUND = re.compile(r'(?<!\S)\S+ "([^"]*)" not found')
#: Of a resource that is not served: the second is the API server's plain text if it does not know
#: the group either.
_UNKNOWN_API = re.compile(r"could not find the requested resource|\A404 page not found\s*\Z")
_INTERNAL = re.compile(r"(?:Internal error(?: occurred)?: )+")
#: Two changes at the same time; the second one may be repeated.
_MODIFIED = re.compile(r"the object has been modified|storage error|try again", re.IGNORECASE)
_TERMINATING = re.compile(r"because it is being terminated")
#: Statuses that anything on the way to the API server may answer with, such as an ingress.
_OF_ANYTHING = frozenset({403, 404})
#: Statuses about the line of a request, or its headers. Proxies also answer 400, with a page.
_TOO_LONG = frozenset({414, 431})
_PAGE = re.compile(r"\s*<(?:!doctype|html|head|h1)", re.IGNORECASE)
#: The core group of the API, in a Role.
_CORE = '""'
#: Group of the API -> who brings it.
_BRINGS = {"jobset.x-k8s.io": "JobSet", "kueue.x-k8s.io": "Kueue"}


class CannotCall(Exception):  # noqa: N818
    """The API server was not reached, or has refused. The text says why, for people.

    refused: whether it would do so again. status: of its answer; None: it has not answered.
    retry_after: seconds after which it wants the next call, if it has said so.
    """

    def __init__(
        self,
        text: str,
        *,
        refused: bool,
        status: int | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(text)
        self.refused, self.status, self.retry_after = refused, status, retry_after

    @property
    def is_unknown(self) -> bool:
        """Whether the object does not exist."""
        return self.status == 404

    @property
    def lasts(self) -> bool:
        """Whether the same call is refused later as well. Credentials may be renewed, and the
        configuration may be repaired."""
        return self.refused and self.status not in (None, 401)


def not_applied(error: CannotCall, verb: str) -> str:
    """Why a JobSet was not applied. verb: what the API server has done, or not. If it was not
    reached or has not let anybody in, it has not seen the JobSet."""
    if error.status in (None, 401):
        return str(error)
    return f"the API server has {verb}: {error}"


class Operation(Struct, frozen=True):
    """What a call does with which objects, as far as a sentence about it needs that."""

    #: As a Role has it: `get`, `list`, `watch`, `patch`, `create` or `delete`.
    verb: str
    group: str
    resource: str
    #: As people know it, such as `JobSet`.
    kind: str
    namespace: str
    #: "" for several.
    name: str = ""
    #: What was applied.
    manifest: Mapping[str, Any] = {}

    @property
    def what(self) -> str:
        """The object, or the kind."""
        return f"{self.kind} {self.name}" if self.name else f"the {self.kind} objects"


def refusal(operation: Operation, status: int, body: Mapping[str, Any]) -> CannotCall:
    """What an answer with an error means. body: a Status, or what else was answered; {} if that is
    not JSON. Only a Status says that something is forbidden, or does not exist."""
    text = _text(body.get("message"))
    details = body.get("details")
    details = details if isinstance(details, Mapping) else {}
    seconds = details.get("retryAfterSeconds")
    wait = min(max(seconds, 0.0), LONGEST_WAIT) if isinstance(seconds, (int, float)) else None

    def because(why: str, *, refused: bool = True) -> CannotCall:
        return CannotCall(why[:LONGEST_TEXT], refused=refused, status=status, retry_after=wait)

    if status == 401:
        return because(
            "the cluster does not accept the credentials (401 Unauthorized): log in again, or "
            "choose another `context`"
        )
    if status in _OF_ANYTHING and body.get("kind") != "Status":
        return CannotCall(_not_the_api_server(status), refused=False)
    if status == 403 and (found := _NO_RIGHT.search(text)) is not None:
        return because(_missing_right(found))
    if status == 403 and _TERMINATING.search(text):
        return because(f"namespace {operation.namespace} is being deleted")
    if status == 404:
        return because(_not_found(operation, text, details))
    if status == 409:
        return because(_conflict(operation, text, details), refused=not _MODIFIED.search(text))
    if status == 410:
        return because("the requested version has expired (410)")
    if status == 413 or "Request entity too large" in text or "too long: may not be more" in text:
        return because(f"{operation.what} is larger than the cluster accepts")
    if why := _too_long(status, text):
        return because(why)
    if status == 429:
        return because("the API server limits requests (429)", refused=False)
    if (found := _SILENT_WEBHOOK.search(text)) is not None:
        why = f"webhook {found[1]} of the cluster does not answer: {_plain(found[2])}"
        return because(why, refused=False)
    sentences = list(_sentences(operation, text, details))
    why = "; ".join(dict.fromkeys(sentences)) or f"the cluster answers {status}"
    if status in PASSING and not _TYPED.search(text):
        return because(f"{why} ({status})", refused=False)
    return because(why, refused=_quota(text) is None)


def _not_the_api_server(status: int) -> str:
    return (
        f"what answers {status} is not the API server: check `server` of the cluster, and what is "
        "on the way, such as a proxy or an ingress"
    )


def _too_long(status: int, text: str) -> str:
    """The sentence about a request with too long a line or headers; "" if it is something else."""
    if status in _TOO_LONG:
        return (
            "the request is longer than the cluster, or a proxy on the way to it, accepts "
            f"({status})"
        )
    if status == 400 and _PAGE.match(text):
        return (
            "what answers 400 is not the API server, but a proxy on the way to it, which does not "
            "accept the request: it may be too long"
        )
    return ""


def redirect(location: str) -> CannotCall:
    """What an answer means that leads elsewhere (3xx), as to the page of a login: whoever is there
    gets no credentials. location: as the answer has it."""
    try:
        host = urlsplit(location).hostname
    except ValueError:
        host = None
    where = host or "another page of its own"
    text = f"the cluster redirects to {where[:200]}: log in there, or correct `server`"
    return CannotCall(text, refused=True)


def _missing_right(found: re.Match[str]) -> str:
    """The sentence about a verb that is not allowed, with the rule of a Role that allows it."""
    user, verb, resource, group, namespace = found.groups()
    where = f"in namespace {namespace}" if namespace else "in the whole cluster"
    verbs = ("get", "create") if resource == "pods/exec" else (verb,)  # asked for one by one
    return (
        f"{user or 'this user'} may not {verb} {resource} {where}: its Role there lacks "
        f"{rules_text([(one, group, resource) for one in verbs])}"
    )


def rules_text(rights: Iterable[tuple[str, str, str]]) -> str:
    """Rules of a Role, as in a manifest. rights: verb, group and resource of each."""
    verbs = dict[tuple[str, str], list[str]]()
    for verb, group, resource in rights:
        verbs.setdefault((group, resource), []).append(verb)
    return ", ".join(
        f"{{apiGroups: [{group or _CORE}], resources: [{resource}], verbs: [{', '.join(those)}]}}"
        for (group, resource), those in verbs.items()
    )


def _not_found(operation: Operation, text: str, details: Mapping[str, Any]) -> str:
    if details.get("kind") == "namespaces":
        return (
            f"the cluster has no namespace {operation.namespace}: create it, or choose another one"
        )
    found = _NOT_FOUND.search(text)
    if found is None and (not text or _UNKNOWN_API.search(text)):
        brings = _BRINGS.get(operation.group)
        if brings is not None:
            return (
                f"{brings} is not installed in the cluster: it does not know {operation.resource}"
            )
        return f"the cluster does not know {operation.resource}"
    if found is not None and found[1] != operation.name:
        return f"{operation.what}: {_plain(text)}"
    return f"namespace {operation.namespace} has no {operation.what}"


def _conflict(operation: Operation, text: str, details: Mapping[str, Any]) -> str:
    owned = [c for c in _causes(details) if c.get("reason") == "FieldManagerConflict"]
    if not owned:
        return f"{operation.what}: {_plain(text) or 'it was changed by others meanwhile'}"
    parts = []
    for cause in owned:
        found = _CONFLICT.search(_text(cause.get("message")))
        who = found[1] if found is not None else "somebody else"
        parts.append(f"{_where(operation, _text(cause.get('field')))} was set by {who}")
    return f"{operation.what} has fields that others manage: {'; '.join(parts)}"


def _sentences(operation: Operation, text: str, details: Mapping[str, Any]) -> Iterator[str]:
    """One for each cause of a refusal."""
    causes = [one for one in _causes(details) if one.get("message")]
    webhook = _WEBHOOK.search(text)
    if causes and webhook is None:
        for cause in causes:
            yield _sentence(operation, _text(cause.get("field")), _text(cause["message"]))
        return
    if fields := _STRICT.findall(text):
        for how, field in fields:
            known = "is not known by the cluster" if how == "unknown" else "is given twice"
            yield f"{_where(operation, field)} {known}"
        return
    start = "" if webhook is None else f"{webhook[1]}: "
    for one in _parts(text):
        found = _PATH.fullmatch(one)
        path, message = ("", one) if found is None else (found[1], found[2])
        sentence = _sentence(operation, path, message)
        yield sentence if found is not None and path != "<nil>" else start + sentence


def _causes(details: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found = details.get("causes")
    every = found[:_MOST_CAUSES] if isinstance(found, list) else []
    return [one for one in every if isinstance(one, Mapping)]


def _parts(text: str) -> Iterator[str]:
    """The causes that a text has."""
    for pattern in (_WEBHOOK, _INVALID, _TYPED):
        text = text[found.end() :] if (found := pattern.search(text)) is not None else text
    text = text.strip()
    if text.startswith("[") and text.endswith("]"):
        text = text[1:-1]
    for line in text.split("\n"):
        for one in _NEXT_CAUSE.split(line.rstrip(_ENDS)):
            if part := one.strip():
                yield part


def _sentence(operation: Operation, path: str, message: str) -> str:
    """One cause."""
    message = _INTERNAL.sub("", message)
    if (quota := _quota(message)) is not None:
        name, requested, used, limit = map(_plain, quota)
        return (
            f"quota {name} of namespace {operation.namespace} does not allow it: {requested} "
            f"requested, {used} used, the limit is {limit}"
        )
    if (security := _SECURITY.search(message)) is not None:
        return (
            f"pod security {security[1]} of namespace {operation.namespace}: {_plain(security[2])}"
        )
    text = _plain(message)
    return f"{where}: {text}" if (where := _where(operation, path)) else text


def _quota(text: str) -> list[str] | None:
    """The name of a quota that a text says is exceeded, what was requested of it, what is used,
    and its limit; None if the text says something else."""
    found: list[str] = []
    for mark in _QUOTA:
        before, has_mark, text = text.partition(mark)
        if not has_mark:
            return None
        found.append(before)
    return [*found[1:], text]


def _text(value: object) -> str:
    """The beginning of a text in a Status; "" if there is none."""
    return str(value or "")[:LONGEST_TEXT]


def _where(operation: Operation, path: str) -> str:
    """A path in the words of the job; "" for none."""
    path = path.strip().removeprefix(".")
    return "" if path in ("", "<nil>") else spec_path(path, operation.manifest)


def _plain(text: str) -> str:
    return " ".join(text.split()).rstrip(".,;")
