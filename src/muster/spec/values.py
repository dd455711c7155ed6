"""What single fields take: types that accept more than they are, and the texts they refuse.

What a field accepts besides its own type is in `Meta(extra={"parse": ...})`, which makes the one of
the other; `extra_json_schema` is the whole of what may be written.
"""

from __future__ import annotations

import re
import shlex
from typing import Annotated, Any

from msgspec import Meta

from muster.spec.quantities import parse_duration, parse_size
from muster.spec.wording import Refused, short

#: The tag by which a run is known to be a cluster that stays.
CLUSTER_TAG = "muster-cluster"
#: OCI: maximumRuntimeInMinutes, default and ceiling 43,200.
MAX_RUNTIME = 30 * 86400.0
#: OCI: displayName, characters.
MAX_DISPLAY_NAME = 255
#: OCI: custom environment variables, characters of all keys and values together.
MAX_ENV_CHARACTERS = 20_000
#: Nodes of one run: more is a typing mistake, better told than tried.
MAX_NODES = 100_000
#: Processes of one run, over all its nodes.
MAX_PROCESSES = 1_000_000

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KEY_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_PREFIX = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_GROUP_NAME = re.compile(r"[A-Za-z]([A-Za-z0-9_-]*[A-Za-z0-9])?")
_JOB_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
#: What a shell would do something about, and a program is given as it stands.
_OPERATORS = frozenset({"&&", "||", "|", ";", "&", ">", ">>", "<", "2>", "2>&1", "&>"})
_OPERATORS_IN = re.compile(r"[&|;<>]")
_MOST_SHOWN = 120  # characters of a command in a hint
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
LABEL_HINT = "use up to 63 lower-case letters, digits and -, from a letter or digit to another"


def _runtime(value: Any) -> float:
    seconds = parse_duration(value)
    if seconds == 0:
        raise Refused(f"{short(value)} is no time at all", "at most 30d, the default")
    if seconds > MAX_RUNTIME:
        raise Refused(f"{short(value)} is too long", "a run may take 30d at most")
    return seconds


def _scalar(value: Any) -> Any:
    """YAML's own scalars as the text a program would expect."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, (int, float)) else value


def _words(value: Any) -> Any:
    return words_of(_scalar(value)) if isinstance(value, (str, int, float)) else value


def words_of(text: str) -> list[str]:
    """A command's text as words. Raises Refused for what only a shell could make sense of."""
    try:
        words = shlex.split(text)
        operator = _operator(text)
    except ValueError:
        hint = "close it, or write a list of words"
        raise Refused(f"{short(text)} has a quote that is not closed", hint) from None
    if operator:
        import json

        way = f"[sh, -c, {json.dumps(text)}]" if len(text) < _MOST_SHOWN else "[sh, -c, '...']"
        hint = f"write {way}, or quote {operator} if the program is to get it"
        raise Refused(f"has {operator} in it, but no shell reads this", hint)
    return words


def _operator(text: str) -> str:
    """The first word that is a shell's and not the program's: whole, and without quotes."""
    if not _OPERATORS_IN.search(text):
        return ""
    lexer = shlex.shlex(text, posix=False)  # which leaves quotes where they are
    lexer.whitespace_split, lexer.commenters = True, ""
    return next((word for word in lexer if word in _OPERATORS), "")


def _env_name(name: str) -> str:
    if not _ENV_NAME.fullmatch(name):
        hint = "use letters, digits and _, not starting with a digit"
        raise Refused(f"{short(name)} cannot name an environment variable", hint)
    return name


def is_group_name(name: str) -> bool:
    """Whether a group can be called so."""
    return len(name) <= 40 and _GROUP_NAME.fullmatch(name) is not None


def _group_name(name: Any) -> Any:
    if isinstance(name, str) and not is_group_name(name):
        hint = "use up to 40 letters, digits, - and _, from a letter to a letter or digit"
        raise Refused(f"{short(name)} is not a name for a group", hint)
    return name


def _job_name(name: Any) -> Any:
    if isinstance(name, str) and not (_JOB_NAME.fullmatch(name) and len(name) <= 255):
        hint = "use up to 255 letters, digits, . _ and -, starting with a letter or digit"
        if display_name_fault(name) is None:
            hint += "; display_name takes any text"
        raise Refused(f"{short(name)} is not a name for a job", hint)
    return name


def display_name_fault(text: str) -> str | None:
    """What is wrong with a name for people (OCI: displayName); None if nothing is."""
    if not text.strip():
        return "is empty"
    if len(text) > MAX_DISPLAY_NAME:
        return f"has {len(text)} characters, and {MAX_DISPLAY_NAME} are allowed"
    if not text.isprintable():
        return "has characters in it that cannot be shown, or several lines"
    return None


def _display_name(value: Any) -> Any:
    value = _scalar(value)
    if isinstance(value, str) and (fault := display_name_fault(value)) is not None:
        raise Refused(f"{short(value)} {fault}", "use one line of text")
    return value


_TEXT_OR_NUMBER = {"type": ["string", "number"]}


def is_label(text: str) -> bool:
    """Whether it can be a part of a host name (RFC 1123)."""
    return len(text) <= 63 and _LABEL.fullmatch(text) is not None


def _label(value: Any) -> Any:
    if isinstance(value, str) and not is_label(value):
        raise Refused(f"{short(value)} cannot be part of a host name", LABEL_HINT)
    return value


def _metadata_key(key: str) -> str:
    """Kubernetes: what labels and annotations may be called."""
    prefix, slash, name = key.rpartition("/")
    fits = len(prefix) <= 253 and _PREFIX.fullmatch(prefix) if slash else True
    if not fits or not _KEY_NAME.fullmatch(name):
        hint = "use up to 63 letters, digits, - _ and ., behind a domain and / if you like"
        raise Refused(f"{short(key)} cannot be the key of a label or annotation", hint)
    return key


def is_label_value(text: str) -> bool:
    """Kubernetes: whether a label may have it."""
    return not text or _KEY_NAME.fullmatch(text) is not None


def _label_value(value: Any) -> Any:
    text = _scalar(value)
    if isinstance(text, str) and not is_label_value(text):
        hint = "use up to 63 letters, digits, - _ and ., or make it an annotation"
        raise Refused(f"{short(text)} cannot be the value of a label", hint)
    return text


_SCALARS = {"type": ["string", "number", "boolean"]}

#: 90, 90s, 1.5h: becomes seconds.
Duration = Annotated[
    float, Meta(extra={"parse": parse_duration}, extra_json_schema=_TEXT_OR_NUMBER)
]
Runtime = Annotated[float, Meta(extra={"parse": _runtime}, extra_json_schema=_TEXT_OR_NUMBER)]
Size = Annotated[
    int, Meta(gt=0, extra={"parse": parse_size}, extra_json_schema={"type": ["string", "integer"]})
]
_Word = Annotated[str, Meta(extra={"parse": _scalar})]
Words = Annotated[
    tuple[_Word, ...],
    Meta(
        extra={"parse": _words},
        extra_json_schema={"type": ["string", "number", "boolean", "array"], "items": _SCALARS},
    ),
]
_EnvName = Annotated[str, Meta(extra={"parse": _env_name})]
Env = Annotated[
    dict[_EnvName, _Word],
    Meta(extra_json_schema={"type": "object", "additionalProperties": _SCALARS}),
]
Tags = Annotated[
    dict[str, _Word],
    Meta(extra_json_schema={"type": "object", "additionalProperties": _SCALARS}),
]
_MetadataKey = Annotated[str, Meta(extra={"parse": _metadata_key})]
Labels = Annotated[
    dict[_MetadataKey, Annotated[str, Meta(extra={"parse": _label_value})]],
    Meta(extra_json_schema={"type": "object", "additionalProperties": _SCALARS}),
]
Annotations = Annotated[
    dict[_MetadataKey, _Word],
    Meta(extra_json_schema={"type": "object", "additionalProperties": _SCALARS}),
]
#: Anything JSON can say, for a framework to look at.
Options = Annotated[dict[str, Any], Meta(extra_json_schema={"type": "object"})]
Text = Annotated[str, Meta(min_length=1)]
GroupName = Annotated[str, Meta(extra={"parse": _group_name})]
JobName = Annotated[str, Meta(extra={"parse": _job_name})]
DisplayName = Annotated[
    str,
    Meta(extra={"parse": _display_name}, extra_json_schema={"type": ["string", "number"]}),
]
Label = Annotated[str, Meta(extra={"parse": _label})]
Count = Annotated[int, Meta(ge=1)]
#: A time after which something is over.
Limit = Annotated[Duration, Meta(gt=0)]
Positive = Annotated[float, Meta(gt=0)]
#: More than any shape has CPUs: beyond it, it is a typing mistake.
Processes = Annotated[int, Meta(ge=1, le=1024)]
