"""Names of images: `registry.example.com:5000/team/trainer:1.4`.

Source of the grammar: the reference grammar of the container registries (OCI distribution
specification, "Pulling manifests"; the registry part as docker and podman read it).
"""

from __future__ import annotations

import re

from msgspec import Struct
from msgspec.structs import replace

from muster.errors import InvalidInput, Problem
from muster.spec.wording import short

_HOST = re.compile(
    r"(\[[0-9A-Fa-f:]+\]|[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?"
    r"(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*)(:[0-9]{1,5})?"
)
_PART = re.compile(r"[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_DIGEST = re.compile(r"[a-z0-9]+:[0-9a-fA-F]{32,}")
#: USER:PASSWORD@, but not NAME:TAG@sha256:...
_PASSWORD = re.compile(r"([a-z]+://)?[^/@:]*:[^/@]*@(?![a-z0-9]+:[0-9a-fA-F]{8,}$)")
#: Characters of registry and repository together that registries allow.
_MAX_LENGTH = 255
#: The registry of names without one, and what else it is called.
DOCKER_HUB = "docker.io"
_OF_DOCKER = {"": DOCKER_HUB, "index.docker.io": DOCKER_HUB}
_FORM = "REGISTRY/NAME:TAG, as in registry.example.com/team/trainer:1.4"


class Reference(Struct, frozen=True):
    """The parts of an image's name. A missing registry, tag or digest is ""."""

    registry: str
    repository: str
    tag: str
    digest: str = ""

    def __str__(self) -> str:
        name = f"{self.registry}/{self.repository}" if self.registry else self.repository
        digest = f"@{self.digest}" if self.digest else ""
        return f"{name}:{self.tag}{digest}" if self.tag else f"{name}{digest}"


def read_tag(text: str, path: str = "--tag") -> Reference:
    """Read the name for a new image. The default tag is `latest`.

    Raises InvalidInput with all problems and a suggestion.
    """
    reference = _read(text, path, _suggest(text))
    if reference.digest:
        hint = f"write {text.partition('@')[0]}"
        problem = f"{text!r} has a digest, which is computed from the image and cannot be chosen"
        raise InvalidInput(Problem(path, problem, hint))
    return replace(reference, tag=reference.tag or "latest")


def read_base(text: str, path: str = "--base") -> Reference:
    """Read the name of an existing image, by tag, digest or both. Raises InvalidInput."""
    return _read(text, path, "")


def _read(text: str, path: str, suggestion: str) -> Reference:
    if _PASSWORD.match(text):
        hint = "log in with the builder instead: podman login REGISTRY"
        raise InvalidInput(Problem(path, "the image's name contains a password", hint))
    problems = _problems(text)
    if problems:
        hint = f"did you mean {suggestion}?" if suggestion else f"write {_FORM}"
        raise InvalidInput(
            *(Problem(path, f"{short(text)} {problem}", hint) for problem in problems)
        )
    return _split(text)


def repository_name(text: str) -> str:
    """What policies call the repository of an image (`target.repo.name`). It begins with the
    registry, so that nobody has an image of the same name elsewhere be taken for it.

    OCI: in its own registry, REGION.ocir.io/NAMESPACE/NAME:TAG, it is the NAME alone. docker: a
    name without a registry is of docker.io, and one without a slash is in library/ there.
    """
    reference = _split(text)
    repository = reference.repository
    if reference.registry.partition(":")[0].endswith(".ocir.io"):
        return repository.partition("/")[2] or repository
    registry = _OF_DOCKER.get(reference.registry, reference.registry)
    if registry == DOCKER_HUB and "/" not in repository:
        repository = f"library/{repository}"
    return f"{registry}/{repository}"


def _split(text: str) -> Reference:
    name, _, digest = text.partition("@")
    first, slash, rest = name.partition("/")
    registry = first if slash and _is_registry(first) else ""
    repository, _, tag = (rest if registry else name).partition(":")
    return Reference(registry, repository, tag, digest)


def _is_registry(first: str) -> bool:
    """docker's rule: otherwise it is part of the repository in the default registry."""
    return "." in first or ":" in first or first == "localhost" or first != first.lower()


def _problems(text: str) -> list[str]:
    if not text:
        return ["is empty"]
    if re.search(r"\s", text):
        return ["contains a space"]
    if "://" in text:
        return ["starts like a URL"]
    reference = _split(text)
    found = []
    if reference.registry and not _HOST.fullmatch(reference.registry):
        found.append(f"has the registry {reference.registry!r}, which is not HOST or HOST:PORT")
    found += _repository_problems(reference.repository)
    if _has_colon(text, reference) and not _TAG.fullmatch(reference.tag):
        found.append(_tag_problem(reference.tag))
    if "@" in text and not _DIGEST.fullmatch(reference.digest):
        found.append(f"has the digest {reference.digest!r}, which is not of the form sha256:HEX")
    return found


def _has_colon(text: str, reference: Reference) -> bool:
    rest = text.partition("@")[0].removeprefix(f"{reference.registry}/")
    return ":" in rest


def _repository_problems(repository: str) -> list[str]:
    if not repository:
        return ["has no name, only a registry"]
    if len(repository) > _MAX_LENGTH:
        return [f"is longer than {_MAX_LENGTH} characters"]
    if repository != repository.lower():
        return ["has upper-case letters in its name; only the tag may have them"]
    if "//" in repository or repository.startswith("/") or repository.endswith("/"):
        return ["has an extra /"]
    for part in repository.split("/"):
        if not _PART.fullmatch(part):
            allowed = "a-z and 0-9, separated by a single . or _ or any number of -"
            return [f"has {part!r} in its name; allowed are {allowed}"]
    return []


def _tag_problem(tag: str) -> str:
    if not tag:
        return "has nothing after its colon"
    if len(tag) > 128:
        return "has a tag of more than 128 characters"
    if "/" in tag:
        return f"has a / after its last colon, in {tag!r}; a port belongs to a host with a dot"
    wrong = sorted(set(re.sub(r"[A-Za-z0-9_.-]", "", tag)))
    if wrong:
        letters = " ".join(wrong)
        return f"has {letters} in its tag; allowed are letters, digits and _ . -"
    return f"has a tag that starts with {tag[0]}"


def _suggest(text: str) -> str:
    """A valid name close to this one, "" if there is none."""
    near = re.sub(r"^[a-z]+://", "", text.strip()).partition("@")[0].strip("/")
    near = re.sub(r"[\s+]+", "-", near).removesuffix(":")
    parts = _split(near)
    tag = parts.tag.lstrip(".-")[:128]
    near = str(Reference(parts.registry.lower(), parts.repository.lower(), tag))
    return near if near and not _problems(near) else ""
