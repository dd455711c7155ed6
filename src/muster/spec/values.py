"""Types of the spec's fields.

`Meta(extra={"parse": ...})` converts or refuses a value before its type is checked;
`extra_json_schema` describes all values that are accepted.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from msgspec import Meta

from muster.secrets import HIDDEN
from muster.spec.quantities import parse_duration, parse_size
from muster.spec.wording import Refused, say, short

#: The tag that marks a run as a persistent cluster.
CLUSTER_TAG = "muster-cluster"
#: The tag of a retry: the name of the run whose replicas it runs again.
RETRY_TAG = "muster-retry-of"
RERUN_TAG = "muster-rerun-of"
#: Of runs that have adopted what their engine ran already: what that is, such as `jobset/train`.
ADOPTED_TAG = "muster-adopted"
#: Of a run that a schedule has started: the schedule's name, and the time (RFC 3339).
SCHEDULE_TAG = "muster-schedule"
SCHEDULED_TIME_TAG = "muster-scheduled-time"
#: The tags of a run that an event has started: the event's id, and the run that has ended.
EVENT_TAG = "muster-event"
AFTER_TAG = "muster-after"
#: OCI: maximumRuntimeInMinutes, default and ceiling 43,200.
MAX_RUNTIME = 30 * 86400.0
#: OCI: maximum characters of displayName.
MAX_DISPLAY_NAME = 255
#: OCI: maximum characters of all keys and values of custom environment variables.
MAX_ENV_CHARACTERS = 20_000
#: Maximum nodes of a run: more is probably a typing mistake.
MAX_NODES = 100_000
#: Maximum processes of a run, over all its nodes.
MAX_PROCESSES = 1_000_000

_SECRET_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_MODE = re.compile("[0-7]{3,4}")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KEY_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_PREFIX = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_GROUP_NAME = re.compile(r"[A-Za-z]([A-Za-z0-9_-]*[A-Za-z0-9])?")
_JOB_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
#: Operators of a shell, which a program would get as text.
_OPERATORS = frozenset({"&&", "||", "|", ";", "&", ">", ">>", "<", "2>", "2>&1", "&>"})
_OPERATORS_IN = re.compile(r"[&|;<>]")
_LIST = "complete it, or write a list of words"
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
LABEL_HINT = "use up to 63 lower-case letters, digits and -; start and end with a letter or digit"


def _runtime(value: Any) -> float:
    seconds = parse_duration(value)
    if seconds == 0:
        raise Refused(f"{short(value)} is too short", "give up to 30d, the default")
    if seconds > MAX_RUNTIME:
        raise Refused(f"{short(value)} is too long", "a run may take up to 30d")
    return seconds


def _scalar(value: Any) -> Any:
    """A YAML scalar as the text that a program expects."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, (int, float)) else value


def _words(value: Any) -> Any:
    return words_of(_scalar(value)) if isinstance(value, (str, int, float)) else value


def command_of(text: str) -> list[str]:
    """The words of a command given as text: its own, or those of a shell that runs it.

    Raises Refused.
    """
    from muster.spec.shell import placeholder_in, words_or_script  # most commands are lists

    if placeholder := placeholder_in(text):
        hint = "in a command, use variables, such as $NODE_RANK; node_args can have placeholders"
        raise Refused(f"{placeholder} is a placeholder, not a variable", hint)
    try:
        return words_or_script(text)
    except ValueError as error:
        raise Refused(f"{short(text)} {error}", _LIST) from None


def _command(value: Any) -> Any:
    return command_of(_scalar(value)) if isinstance(value, (str, int, float)) else value


def words_of(text: str) -> list[str]:
    """Split text into words. Raises Refused for operators of a shell."""
    import shlex  # few specs have commands as text

    try:
        words = shlex.split(text)
        operator = _operator(text)
    except ValueError:
        raise Refused(f"{short(text)} has a quote that is not closed", _LIST) from None
    if operator:
        hint = f"quote {operator} to pass it to the program; a shell runs only text in command"
        raise Refused(f"contains {operator}, but no shell runs", hint)
    return words


def _operator(text: str) -> str:
    """The first unquoted word that is an operator of a shell; "" if there is none."""
    if not _OPERATORS_IN.search(text):
        return ""
    from shlex import shlex

    lexer = shlex(text, posix=False)  # keeps quotes
    lexer.whitespace_split, lexer.commenters = True, ""
    return next((word for word in lexer if word in _OPERATORS), "")


def _env_name(name: str) -> str:
    if not _ENV_NAME.fullmatch(name):
        hint = "use letters, digits and _, not starting with a digit"
        raise Refused(f"{short(name)} is not a valid name of an environment variable", hint)
    return name


def _secret_name(name: str) -> str:
    if not _SECRET_NAME.fullmatch(name):
        hint = "use letters, digits, . _ and -, starting with a letter or digit"
        raise Refused(f"{short(name)} is not a valid name of a secret", hint)
    return name


def _secret_value(value: Any) -> Any:
    if value == HIDDEN:
        raise Refused("is what is shown in place of a secret", "write the value itself")
    text = _scalar(value)
    if not isinstance(text, str):
        raise Refused("must be text")  # without the value
    return text


def is_file_path(path: str) -> bool:
    """Whether the text is a path of a file below a directory: relative, without `.` and `..`."""
    return len(path) <= 4000 and {"", ".", ".."}.isdisjoint(path.split("/"))


def _file_path(path: str) -> str:
    if not is_file_path(path):
        text = f"{short(path)} is not a path below the mount"
        raise Refused(text, "write app.conf, or conf.d/app.conf")
    return path


def _file_mode(value: Any) -> Any:
    """The permissions of a file, in octal digits."""
    if isinstance(value, str) and _MODE.fullmatch(value):
        return f"{int(value, 8):04o}"
    raise Refused(f"{say(value)} is not a mode in octal digits", 'write "0644", with the quotes')


def _mount_file(value: Any) -> Any:
    """The fields of a file from its text alone."""
    text = _scalar(value)
    return {"text": text} if isinstance(text, str) else value


def is_env_name(name: str) -> bool:
    """Whether the text is a valid name of an environment variable."""
    return _ENV_NAME.fullmatch(name) is not None


def is_group_name(name: str) -> bool:
    """Whether the text is a valid name of a group."""
    return len(name) <= 40 and _GROUP_NAME.fullmatch(name) is not None


def _group_name(name: Any) -> Any:
    if isinstance(name, str) and not is_group_name(name):
        hint = (
            "use up to 40 letters, digits, - and _; start with a letter, end with a letter or digit"
        )
        raise Refused(f"{short(name)} is not a valid group name", hint)
    return name


def _job_name(name: Any) -> Any:
    if isinstance(name, str) and not (_JOB_NAME.fullmatch(name) and len(name) <= 255):
        hint = "use up to 255 letters, digits, . _ and -, starting with a letter or digit"
        if display_name_fault(name) is None:
            hint += "; display_name can be any text"
        raise Refused(f"{short(name)} is not a valid job name", hint)
    return name


def display_name_fault(text: str) -> str | None:
    """What is wrong with a display name (OCI: displayName); None if it is valid."""
    if not text.strip():
        return "is empty"
    if len(text) > MAX_DISPLAY_NAME:
        return f"has {len(text)} characters, {MAX_DISPLAY_NAME} are allowed"
    if not text.isprintable():
        return "has unprintable characters or several lines"
    return None


def _display_name(value: Any) -> Any:
    value = _scalar(value)
    if isinstance(value, str) and (fault := display_name_fault(value)) is not None:
        raise Refused(f"{short(value)} {fault}", "use one line of text")
    return value


def _mount_source(value: Any) -> Any:
    """A mount's source, with the present name for `scratch:life/`, which still works."""
    if isinstance(value, str) and value.startswith("scratch:life/"):
        return value.replace("life", "incarnation", 1)
    return value


_TEXT_OR_NUMBER = {"type": ["string", "number"]}


def is_label(text: str) -> bool:
    """Whether the text is a valid label of a host name (RFC 1123)."""
    return len(text) <= 63 and _LABEL.fullmatch(text) is not None


def _label(value: Any) -> Any:
    if isinstance(value, str) and not is_label(value):
        raise Refused(f"{short(value)} is not a valid part of a host name", LABEL_HINT)
    return value


def _metadata_key(key: str) -> str:
    """Kubernetes: keys of labels and annotations."""
    prefix, slash, name = key.rpartition("/")
    fits = len(prefix) <= 253 and _PREFIX.fullmatch(prefix) if slash else True
    if not fits or not _KEY_NAME.fullmatch(name):
        hint = "use up to 63 letters, digits, - _ and ., optionally after a domain and /"
        raise Refused(f"{short(key)} is not a valid key of a label or annotation", hint)
    return key


def _address(text: str) -> str:
    from ipaddress import ip_address  # few jobs have any

    try:
        return str(ip_address(text))
    except ValueError:
        raise Refused(f"{short(text)} is not an IP address", "write 10.1.2.3 or fd00::1") from None


def _host_name(value: Any) -> Any:
    if isinstance(value, str) and not (len(value) <= 253 and all(map(is_label, value.split(".")))):
        hint = "use lower-case letters, digits and -, in parts with dots between them"
        raise Refused(f"{short(value)} is not a valid host name", hint)
    return value


def is_label_value(text: str) -> bool:
    """Kubernetes: whether the text is a valid value of a label."""
    return not text or _KEY_NAME.fullmatch(text) is not None


def _label_value(value: Any) -> Any:
    text = _scalar(value)
    if isinstance(text, str) and not is_label_value(text):
        hint = "use up to 63 letters, digits, - _ and ., or make it an annotation"
        raise Refused(f"{short(text)} is not a valid value of a label", hint)
    return text


def array_fields(value: Any) -> Any:
    """The fields of an array from its short forms."""
    from muster.spec.arrays import fields_of_array  # few jobs have an array

    return fields_of_array(value)


def _parameter_name(name: Any) -> Any:
    from muster.spec.arrays import check_name

    return check_name(name) if isinstance(name, str) else name


def _parameter_values(value: Any) -> Any:
    from muster.spec.arrays import values_text

    return values_text(value)


def _parameter_rows(value: Any) -> Any:
    from muster.spec.parameter_rows import rows_text

    return rows_text(value)


def _replica_numbers(value: Any) -> Any:
    from muster.spec.replica_numbers import numbers_text

    return numbers_text(value)


def _gpus(value: Any) -> Any:
    if isinstance(value, str) and (found := re.fullmatch(r"[A-Za-z][\w.-]*:(\d+)", value)):
        hint = f"write {found[1]}; on Kubernetes, kubernetes.node_selector chooses their kind"
        raise Refused(f"must be a number of GPUs, not {say(value)}", hint)
    return value


def _label_key(value: Any) -> Any:
    if not isinstance(value, str):
        hint = "as in cloud.google.com/gke-nodepool"
        raise Refused(f"must be the key of a label of machines, not {say(value)}", hint)
    return value


def _notify(value: Any) -> Any:
    """A name, or a list of names: they are told when the run has ended, however."""
    names = [value] if isinstance(value, str) else value
    if isinstance(names, list) and all(isinstance(name, str) for name in names):
        return dict.fromkeys(names, "ended")
    return value


_SCALARS = {"type": ["string", "number", "boolean"]}

#: 90, 90s, 1.5h; in seconds.
Duration = Annotated[
    float, Meta(extra={"parse": parse_duration}, extra_json_schema=_TEXT_OR_NUMBER)
]
Runtime = Annotated[float, Meta(extra={"parse": _runtime}, extra_json_schema=_TEXT_OR_NUMBER)]
Size = Annotated[
    int, Meta(gt=0, extra={"parse": parse_size}, extra_json_schema={"type": ["string", "integer"]})
]
_Word = Annotated[str, Meta(extra={"parse": _scalar})]
SlurmTime = Annotated[
    str,
    Meta(
        extra={"parse": _scalar},
        min_length=1,
        extra_json_schema={"type": ["string", "integer"]},
    ),
]
Words = Annotated[
    tuple[_Word, ...],
    Meta(
        extra={"parse": _words},
        extra_json_schema={"type": ["string", "number", "boolean", "array"], "items": _SCALARS},
    ),
]
Command = Annotated[
    tuple[_Word, ...],
    Meta(
        extra={"parse": _command},
        extra_json_schema={"type": ["string", "number", "boolean", "array"], "items": _SCALARS},
    ),
]
_EnvName = Annotated[str, Meta(extra={"parse": _env_name})]
Env = Annotated[
    dict[_EnvName, _Word],
    Meta(extra_json_schema={"type": "object", "additionalProperties": _SCALARS}),
]
#: Values that are never shown, by name.
Secrets = Annotated[
    dict[
        Annotated[str, Meta(extra={"parse": _secret_name})],
        Annotated[str, Meta(extra={"parse": _secret_value})],
    ],
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
#: Address -> names of the machine.
HostAliases = Annotated[
    dict[
        Annotated[str, Meta(extra={"parse": _address})],
        tuple[Annotated[str, Meta(extra={"parse": _host_name})], ...],
    ],
    Meta(extra_json_schema={"type": "object", "additionalProperties": {"type": "array"}}),
]
#: Name of a notification -> when it is told of the run.
Notify = Annotated[
    dict[str, Literal["ended", "failed", "succeeded", "never"]],
    Meta(extra={"parse": _notify}, extra_json_schema={"type": ["object", "string", "array"]}),
]
#: Any JSON object; checked by the framework.
Options = Annotated[dict[str, Any], Meta(extra_json_schema={"type": "object"})]
Text = Annotated[str, Meta(min_length=1)]
FilePath = Annotated[str, Meta(extra={"parse": _file_path})]
#: Octal digits, such as 0644.
FileMode = Annotated[str, Meta(extra={"parse": _file_mode}, extra_json_schema={"type": ["string"]})]
#: The parser of a `MountFile`, which may be given by its text alone.
MOUNT_FILE = Meta(
    extra={"parse": _mount_file},
    extra_json_schema={"type": ["object", "string", "number", "boolean"]},
)
MountSource = Annotated[Text, Meta(extra={"parse": _mount_source})]
GroupName = Annotated[str, Meta(extra={"parse": _group_name})]
JobName = Annotated[str, Meta(extra={"parse": _job_name})]
DisplayName = Annotated[
    str,
    Meta(extra={"parse": _display_name}, extra_json_schema={"type": ["string", "number"]}),
]
Label = Annotated[str, Meta(extra={"parse": _label})]
Count = Annotated[int, Meta(ge=1)]
Natural = Annotated[int, Meta(ge=0)]
Gpus = Annotated[int, Meta(ge=0, extra={"parse": _gpus})]
#: Of machines in a Kubernetes cluster.
LabelKey = Annotated[str, Meta(min_length=1, extra={"parse": _label_key})]
_ParameterName = Annotated[str, Meta(extra={"parse": _parameter_name})]
_ParameterValues = Annotated[str, Meta(extra={"parse": _parameter_values})]
_VALUES = {"type": ["string", "number", "boolean", "array"], "items": _SCALARS}
#: Name -> values in the form of `arrays.parse_values`; also a list.
ParameterGrid = Annotated[
    dict[_ParameterName, _ParameterValues],
    Meta(extra_json_schema={"type": "object", "additionalProperties": _VALUES}),
]
#: Parameter sets in the form of `parameter_rows`; also a list of mappings.
ParameterRows = Annotated[
    str,
    Meta(
        extra={"parse": _parameter_rows},
        extra_json_schema={"type": ["string", "array"], "items": {"type": "object"}},
    ),
]
#: Numbers of replicas in the form of `replica_numbers`; also a list.
ReplicaNumbers = Annotated[
    str,
    Meta(
        extra={"parse": _replica_numbers},
        extra_json_schema={"type": ["string", "integer", "array"], "items": {"type": "integer"}},
    ),
]
#: A timeout.
Limit = Annotated[Duration, Meta(gt=0)]
Positive = Annotated[float, Meta(gt=0)]
#: The maximum exceeds the CPUs of any shape; more is probably a typing mistake.
Processes = Annotated[int, Meta(ge=1, le=1024)]
