"""What an image may be called: `registry.example.com:5000/team/trainer:1.4`.

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
#: USER:PASSWORD@, and not NAME:TAG@sha256:...
_PASSWORD = re.compile(r"([a-z]+://)?[^/@:]*:[^/@]*@(?![a-z0-9]+:[0-9a-fA-F]{8,}$)")
#: Of registry and repository together; what registries themselves allow.
_LONGEST = 255
_FORM = "REGISTRY/NAME:TAG, as in registry.example.com/team/trainer:1.4"


class Reference(Struct, frozen=True):
    """An image's name in its parts. registry: "" where none was given; so digest."""

    registry: str
    repository: str
    tag: str
    digest: str = ""

    def __str__(self) -> str:
        name = f"{self.registry}/{self.repository}" if self.registry else self.repository
        digest = f"@{self.digest}" if self.digest else ""
        return f"{name}:{self.tag}{digest}" if self.tag else f"{name}{digest}"


def read_tag(text: str, path: str = "--tag") -> Reference:
    """A name that an image may be given; without a tag it is `latest`.

    Raises InvalidInput with everything wrong with it, and what was probably meant.
    """
    reference = _read(text, path, _meant(text))
    if reference.digest:
        hint = f"write {text.partition('@')[0]}"
        problem = f"{text!r} has a digest, which follows from what is built and cannot be chosen"
        raise InvalidInput(Problem(path, problem, hint))
    return replace(reference, tag=reference.tag or "latest")


def read_base(text: str, path: str = "--base") -> Reference:
    """A name of an image that is there, by tag, digest or both. Raises InvalidInput."""
    return _read(text, path, "")


def _read(text: str, path: str, meant: str) -> Reference:
    if _PASSWORD.match(text):
        hint = "log in with the builder instead: podman login REGISTRY"
        raise InvalidInput(Problem(path, "the image's name has a password in it", hint))
    problems = _problems(text)
    if problems:
        hint = f"did you mean {meant}?" if meant else f"write {_FORM}"
        raise InvalidInput(
            *(Problem(path, f"{short(text)} {problem}", hint) for problem in problems)
        )
    return _split(text)


def _split(text: str) -> Reference:
    name, _, digest = text.partition("@")
    first, slash, rest = name.partition("/")
    registry = first if slash and _is_registry(first) else ""
    repository, _, tag = (rest if registry else name).partition(":")
    return Reference(registry, repository, tag, digest)


def _is_registry(first: str) -> bool:
    """docker's rule: else it is a folder of the default registry."""
    return "." in first or ":" in first or first == "localhost" or first != first.lower()


def _problems(text: str) -> list[str]:
    if not text:
        return ["is empty"]
    if re.search(r"\s", text):
        return ["has a space in it"]
    if "://" in text:
        return ["begins like a web address"]
    reference = _split(text)
    found = []
    if reference.registry and not _HOST.fullmatch(reference.registry):
        found.append(f"names no registry: {reference.registry!r} is no host, or HOST:PORT")
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
    if len(repository) > _LONGEST:
        return [f"is longer than {_LONGEST} characters"]
    if repository != repository.lower():
        return ["has capitals in its name; only the tag may have them"]
    if "//" in repository or repository.startswith("/") or repository.endswith("/"):
        return ["has a / too many"]
    for part in repository.split("/"):
        if not _PART.fullmatch(part):
            allowed = "a-z and 0-9, with single . or _ or any number of - between them"
            return [f"has {part!r} in its name; there may be {allowed}"]
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
        return f"has {letters} in its tag; there may be letters, digits and _ . -"
    return f"has a tag that begins with {tag[0]}"


def _meant(text: str) -> str:
    """A name close to this one that can be used, "" if there is none."""
    near = re.sub(r"^[a-z]+://", "", text.strip()).partition("@")[0].strip("/")
    near = re.sub(r"[\s+]+", "-", near).removesuffix(":")
    parts = _split(near)
    tag = parts.tag.lstrip(".-")[:128]
    near = str(Reference(parts.registry.lower(), parts.repository.lower(), tag))
    return near if near and not _problems(near) else ""
